//! Images that a reply shows.

use image::GenericImageView as _;
use serde_json::json;

use crate::support::{Ipybox, Place};

const PLOTS: &str = "\
import matplotlib.pyplot as plt
def plot(count, **options):
    for number in range(count):
        plt.figure(**options)
        plt.plot([1, 4, 9 + number])
        plt.show()
";

async fn ipybox(place: &Place, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.ipybox_with(flags).await;
    ipybox.cell(PLOTS).await.ok();
    ipybox
}

fn links(text: &str) -> usize {
    text.matches("](/").count()
}

#[tokio::test]
pub(crate) async fn a_plot_is_shown_as_it_was_saved() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &[]).await;
    let reply = ipybox.start_cell("plot(1)").await.response().await.unwrap();
    let content = reply["result"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!((&content[0]["type"], &content[1]["type"]), (&json!("text"), &json!("image")));
    let answer = ipybox.cell("plot(1)").await;
    let [(mime_type, file)] = &answer.images[..] else { panic!("{} images", answer.images.len()) };
    assert_eq!(mime_type, "image/png");
    assert!(image::load_from_memory(file).unwrap().width() > 100);
    let path = answer.text.split(['(', ')']).nth(1).unwrap();
    assert!(&std::fs::read(path).unwrap() == file);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_large_plot_is_scaled_down() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &[]).await;
    let answer = ipybox.cell("plot(1, figsize=(32, 8))").await;
    let image = image::load_from_memory(&answer.images[0].1).unwrap();
    assert_eq!(image.dimensions().0, 1568);
    assert_eq!(links(&answer.ok()), 1);
    ipybox.stop().await;
}

#[tokio::test]
async fn four_of_many_plots_are_shown() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &[]).await;
    let answer = ipybox.cell("plot(6)").await;
    assert_eq!((answer.images.len(), links(&answer.text)), (4, 6), "{}", answer.text);
    ipybox.stop().await;
}

#[tokio::test]
async fn plots_are_shown_however_the_cell_ended() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &[]).await;
    let raised = ipybox.cell("plot(1)\n1 / 0").await;
    assert_eq!(raised.images.len(), 1);
    assert!(raised.error().contains("ZeroDivisionError"));
    let code = "plot(1)\nimport time\ntime.sleep(600)";
    let late = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 15})).await;
    assert_eq!(late.images.len(), 1, "{}", late.text);
    assert!(late.error().contains("timed out"));
    ipybox.stop().await;
}

#[tokio::test]
async fn what_is_no_image_is_linked_alone() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &[]).await;
    let code = "import base64\n\
                for data in [b'garbage', b'\\x89PNG\\r\\n\\x1a\\n and no more']:\n    \
                display({'image/png': base64.b64encode(data).decode()}, raw=True)\n\
                plot(1)";
    let answer = ipybox.cell(code).await;
    assert_eq!((answer.images.len(), links(&answer.text)), (1, 3), "{}", answer.text);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_user_may_want_links_alone() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &["--images", "link"]).await;
    let answer = ipybox.cell("plot(2)").await;
    assert_eq!((answer.images.len(), links(&answer.text)), (0, 2), "{}", answer.text);
    ipybox.stop().await;
}
