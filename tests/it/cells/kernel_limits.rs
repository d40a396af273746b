//! Limits of memory and processes for a kernel.

use crate::support::{Place, eventually};

#[tokio::test]
async fn memory_beyond_the_limit_is_an_exception() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--kernel-memory-limit", "512M"]).await;
    let bytes = 512 << 20;
    let limits = "import resource; resource.getrlimit(resource.RLIMIT_DATA)";
    assert_eq!(ipybox.cell(limits).await.ok(), format!("({bytes}, {bytes})"));
    assert!(ipybox.cell("x = bytearray(2 << 30)").await.error().ends_with("MemoryError: "));
    assert_eq!(ipybox.cell("len(bytearray(100 << 20))").await.ok(), "104857600");
    // Children inherit it.
    let child = "!python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[1])'";
    assert_eq!(ipybox.cell(child).await.ok(), bytes.to_string());
    let text = ipybox.cell("import os; os.kill(os.getpid(), 9)").await.error();
    assert!(text.contains("signal: 9 (SIGKILL)") && text.contains("may have run out of memory"), "{text}");
    let limit = "Its memory was limited to 512 MiB per process (`--kernel-memory-limit`).";
    assert!(text.contains(limit), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn plots_fit_into_a_gigabyte() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--kernel-memory-limit", "1GiB"]).await;
    let code = "import numpy as np, matplotlib.pyplot as plt\nplt.plot(np.random.rand(1000))\nplt.show()";
    assert!(ipybox.cell(code).await.ok().contains("Generated images"));
    ipybox.stop().await;
}

#[tokio::test]
async fn processes_are_limited_beyond_those_that_run() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--kernel-max-processes", "50"]).await;
    let limits = ipybox.cell("import resource; resource.getrlimit(resource.RLIMIT_NPROC)").await.ok();
    let (soft, hard) = limits.trim_matches(['(', ')']).split_once(", ").unwrap();
    assert_eq!(soft, hard);
    assert!((50..1_000_000).contains(&soft.parse::<u32>().unwrap()), "{soft}");
    let text = ipybox.cell("import os; os._exit(3)").await.error();
    assert!(text.contains("It could start 50 processes and threads (`--kernel-max-processes`)."), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn files_grow_to_the_limit() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--kernel-max-file-size", "1M"]).await;
    let write = |bytes: u32| format!("open('file', 'wb', 0).write(bytes({bytes}))");
    assert_eq!(ipybox.cell(&write(1 << 20)).await.ok(), (1 << 20).to_string());
    assert_eq!(ipybox.cell(&write(2 << 20)).await.ok(), (1 << 20).to_string());
    let more = "file = open('file', 'ab', 0)\nfile.write(b'more')";
    assert!(ipybox.cell(more).await.error().ends_with("OSError: [Errno 27] File too large"));
    let text = ipybox.cell("import os; os._exit(3)").await.error();
    assert!(text.contains("Its files could grow to 1 MiB (`--kernel-max-file-size`)."), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn limits_that_make_no_sense_are_refused() {
    for (flag, value) in [
        ("--kernel-memory-limit", "much"),
        ("--kernel-memory-limit", "1.5G"),
        ("--kernel-memory-limit", "0"),
        ("--kernel-max-processes", "0"),
        ("--kernel-max-processes", "few"),
        ("--kernel-max-file-size", "huge"),
        ("--limit-memory", "much"),
        ("--limit-cpu", "0"),
        ("--limit-processes", "0"),
        ("--limit-disk", "huge"),
    ] {
        let place = Place::new();
        let mut ipybox = place.start(&[flag, value]).await;
        assert_eq!(ipybox.ended().await.code(), Some(2), "{flag} {value}");
        let are_named = || ipybox.log().contains(flag) && ipybox.log().contains(&format!("'{value}'"));
        eventually("the flag and the value are named", are_named).await;
    }
}

#[tokio::test]
async fn a_limit_that_lets_no_kernel_start_is_named_in_the_error() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--kernel-memory-limit", "5M"]).await;
    let text = ipybox.cell("1").await.error();
    assert!(text.contains("limited to 5 MiB per process"), "{text}");
    ipybox.stop().await;
}
