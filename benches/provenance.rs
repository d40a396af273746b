//! Measures how well texts are found again: `cargo bench --bench provenance -- SEEN -- OTHERS`.
//!
//! SEEN and OTHERS are directories with texts of the same kinds: documentation, sources, data. What is in SEEN is entered as
//! the results of tools, up to 100 MB. Then parts of it are written in several ways and looked up, and parts of OTHERS, of
//! which none should be found. Licenses are left out, in files of their own and in others: everybody has the same.

#![allow(clippy::print_stdout, reason = "a tool for developers")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipybox::ProvenanceMemory;
use serde_json::{Map, Value};

/// How much is entered, in bytes.
const SEEN_BYTES: usize = 100_000_000;

/// How much is looked up of other texts, in bytes.
const OTHERS_BYTES: usize = 60_000_000;

/// How many parts of each length are looked up.
const SAMPLES: usize = 1_000;

/// A way to write a text.
type Way = fn(&str) -> String;

const WAYS: [(&str, Way); 10] = [
    ("copied into another text", |text| format!("Hello, here it is: {text} Regards")),
    ("each line indented and quoted", |text| {
        text.lines().map(|line| format!("    > {}\n", line.trim())).collect()
    }),
    ("upper case", str::to_uppercase),
    ("JSON in JSON", |text| Value::from(Value::from(text).to_string()).to_string()),
    ("percent-encoded", |text| text.bytes().map(|byte| format!("%{byte:02X}")).collect()),
    ("Base64", |text| STANDARD.encode(text)),
    ("hex", |text| text.bytes().map(|byte| format!("{byte:02x}")).collect()),
    ("its first half", |text| text[..text.floor_char_boundary(text.len() / 2)].to_owned()),
    ("an x after each 40 characters", |text| {
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(40).map(|chunk| chunk.iter().collect::<String>() + "x").collect()
    }),
    ("reversed", |text| text.chars().rev().collect()),
];

fn main() -> Result<(), Box<dyn Error>> {
    // What Cargo adds.
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [seen, separator, others] = &args[..] else { return Err("SEEN -- OTHERS".into()) };
    if separator != "--" {
        return Err("SEEN -- OTHERS".into());
    }
    let (seen, others) = (texts(Path::new(seen), SEEN_BYTES)?, texts(Path::new(others), OTHERS_BYTES)?);

    let memory = ProvenanceMemory::default();
    let begun = Instant::now();
    for (index, text) in seen.iter().enumerate() {
        memory.saw("files", &format!("read{}", index % 1_000), std::iter::once(text.as_str()));
    }
    let took = begun.elapsed();
    let bytes: usize = seen.iter().map(String::len).sum();
    println!(
        "entered: {} texts, {:.1} MB, {:.1} ms/MB; fingerprints take {:.1} MiB\n",
        seen.len(),
        bytes as f64 / 1e6,
        took.as_secs_f64() * 1e9 / bytes as f64,
        memory.bytes() as f64 / f64::from(1 << 20)
    );

    println!(
        "| found of what was seen | 150 bytes | 300 bytes | 1,000 bytes | 4,000 bytes |\n|---|---|---|---|---|"
    );
    for (name, way) in WAYS {
        let found = [150, 300, 1_000, 4_000].map(|length| share(&memory, &samples(&seen, length), way));
        println!("| {name} | {} |", found.join(" | "));
    }
    println!(
        "\n| found of other texts | 300 bytes | 1,000 bytes | 4,000 bytes | 100,000 bytes |\n|---|---|---|---|---|"
    );
    let joined = joined(&others, 110_000);
    let found = [(300, &others), (1_000, &others), (4_000, &others), (100_000, &joined)]
        .map(|(length, texts)| share(&memory, &samples(texts, length), str::to_owned));
    println!("| as they are | {} |\n", found.join(" | "));

    for (length, times) in [(2_000, 1_000), (1_000_000, 5)] {
        let text = self::joined(&others, length).into_iter().next().ok_or("OTHERS is too small")?;
        let begun = Instant::now();
        (0..times).for_each(|_| {
            is_found(&memory, &text);
        });
        println!(
            "looked up: {} bytes in {:.2} ms",
            text.len(),
            begun.elapsed().as_secs_f64() * 1e3 / f64::from(times)
        );
    }
    Ok(())
}

/// The texts below a directory, at most so many bytes together.
fn texts(directory: &Path, most: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let mut files = Vec::new();
    find(directory, &mut files)?;
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_license = ["LICEN", "COPY", "UNLICEN"].iter().any(|prefix| name.starts_with(prefix));
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let is_license = is_license || text.to_uppercase().contains("WARRANT");
        if !is_license && text.len() >= 300 && bytes + text.len() <= most {
            bytes += text.len();
            texts.push(text);
        }
    }
    Ok(texts)
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let mut entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            find(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// A part of this length of each of many texts, from the first third on.
fn samples(texts: &[String], length: usize) -> Vec<&str> {
    let long: Vec<&String> = texts.iter().filter(|text| text.len() > length + 50).collect();
    let part = |text: &'_ &String| {
        let begin = text.floor_char_boundary((text.len() / 3).min(text.len() - length));
        let end = text.floor_char_boundary(begin + length);
        begin..end
    };
    let has_enough = |part: &&str| part.chars().filter(|letter| letter.is_alphanumeric()).count() >= 95;
    let step = (long.len() / SAMPLES).max(1);
    long.iter().step_by(step).map(|text| &text[part(text)]).filter(has_enough).collect()
}

/// The texts, as many joined as have this length.
fn joined(texts: &[String], length: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut next = String::new();
    for text in texts {
        next += text;
        if next.len() >= length {
            all.push(std::mem::take(&mut next));
        }
    }
    all
}

fn is_found(memory: &ProvenanceMemory, text: &str) -> bool {
    let arguments = Map::from_iter([("text".to_owned(), Value::from(text))]);
    !memory.known(&arguments).origins.is_empty()
}

/// How many are found, written in this way.
fn share(memory: &ProvenanceMemory, samples: &[&str], way: Way) -> String {
    let found = samples.iter().filter(|sample| is_found(memory, &way(sample))).count();
    format!("{:.1} % of {}", 100.0 * found as f64 / samples.len().max(1) as f64, samples.len())
}
