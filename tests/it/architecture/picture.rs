//! The picture of the rooms in `ARCHITECTURE.md`: layers, from the top one down, with the rooms in them.

const BEGIN: &str = "## The rooms";

/// A layer: its rooms may know each other and those of the layers below.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// By their paths: `main.rs`, `kernels/`, `kernels/sandbox/`.
    pub(super) rooms: Vec<String>,
}

/// The layers in `document`, the top one first. Panics if there is no picture, and if a line cannot be understood.
pub(super) fn layers(document: &str) -> Vec<Layer> {
    let section = document.lines().skip_while(|line| *line != BEGIN);
    let picture = section.skip_while(|line| *line != "```text").skip(1).take_while(|line| *line != "```");
    let mut layers: Vec<Layer> = Vec::new();
    for line in picture.filter(|line| !line.is_empty()) {
        match (line.strip_prefix("  "), layers.last_mut()) {
            (None, _) => layers.push(Layer { rooms: names(line).map(str::to_owned).collect() }),
            (Some(line), Some(layer)) => {
                let [folder, ..] = &layer.rooms[..] else { unreachable!("a layer has a line of its own") };
                let rooms: Vec<String> = names(line).map(|name| format!("{folder}{name}")).collect();
                layer.rooms.extend(rooms);
            }
            (Some(_), None) => panic!("the first line of the picture is no layer: {line}"),
        }
    }
    assert!(!layers.is_empty(), "there is no picture of rooms below `{BEGIN}`");
    layers
}

/// The names in a line like `main.rs, cli/  the command line`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let Some((names, phrase)) = line.split_once("  ") else { panic!("nothing is said about `{line}`") };
    let is_name = |name: &str| name.ends_with('/') || name.ends_with(".rs");
    assert!(names.split(", ").all(is_name) && !phrase.trim().is_empty(), "no room and its phrase: {line}");
    names.split(", ")
}

mod tests {
    use super::{BEGIN, Layer, layers};

    fn layers_of(picture: &str) -> Vec<Layer> {
        layers(&format!("# Title\n\n{BEGIN}\n\nWords.\n\n```text\n{picture}\n```\n\nMore.\n\n  no/  room\n"))
    }

    #[test]
    fn a_layer_has_the_rooms_of_its_folder() {
        let layers = layers_of("main.rs, cli/  flags\n\nground/  LAST\n  a/     one\n  b_c/   two");
        let rooms: Vec<Vec<String>> = layers.into_iter().map(|layer| layer.rooms).collect();
        assert_eq!(rooms, [vec!["main.rs", "cli/"], vec!["ground/", "ground/a/", "ground/b_c/"]]);
    }

    #[test]
    #[should_panic(expected = "no room and its phrase")]
    fn a_line_that_names_no_room_fails() {
        layers_of("kernel  one kernel");
    }

    #[test]
    #[should_panic(expected = "nothing is said about")]
    fn a_room_without_a_phrase_fails() {
        layers_of("kernels/  ALL\n  kernel/");
    }

    #[test]
    #[should_panic(expected = "no layer")]
    fn a_room_above_all_layers_fails() {
        layers_of("  kernel/  one kernel");
    }

    #[test]
    #[should_panic(expected = "no picture of rooms")]
    fn a_document_without_the_picture_fails() {
        layers("# Title\n");
    }
}
