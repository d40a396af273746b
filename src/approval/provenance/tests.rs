//! What code and servers may do to hide where data comes from, and what must not be taken for data of others.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const LETTER: &str = "Dear Ann, the merger with Example Ltd. will be announced on Friday; until then nobody must know of it, and \
                      the price of 4,711,815 stays between us.";

fn memory() -> ProvenanceMemory {
    ProvenanceMemory::new(
        serde_json::from_value(json!({"mail": "confidential", "web": "untrusted"})).unwrap(),
    )
}

fn saw(memory: &ProvenanceMemory, server: &str, tool: &str, text: &str) {
    memory.saw(server, tool, std::iter::once(text));
}

fn known(memory: &ProvenanceMemory, value: Value) -> Provenance {
    memory.known(&Map::from_iter([("body".to_owned(), value)]))
}

/// Words in an order that depends on `seed`.
fn prose(mut seed: u64, words: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "window", "market", "paper", "signal", "garden", "winter", "letter", "bridge",
        "copper", "engine", "forest", "harbor", "island", "jacket",
    ];
    let next = || {
        seed = grams::mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        WORDS[seed as usize % WORDS.len()]
    };
    std::iter::repeat_with(next).take(words).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_echo_takes_no_label_away() {
    let memory = memory();
    saw(&memory, "mail", "read", LETTER);
    saw(&memory, "notes", "echo", LETTER);
    assert!(known(&memory, json!(LETTER)).contains_from(Label::Confidential));
    // What a guarded server has too is guarded.
    let public = prose(1, 100);
    saw(&memory, "notes", "echo", &public);
    saw(&memory, "mail", "read", &public);
    assert!(known(&memory, json!(public)).contains_from(Label::Confidential));
}

#[test]
fn an_echo_adds_its_label_and_takes_none_away() {
    let memory = memory();
    let page = prose(2, 100);
    for (first, second) in [("web", "mail"), ("mail", "web")] {
        saw(&memory, first, "read", &page);
        saw(&memory, second, "echo", &page);
        let known = known(&memory, json!(page));
        assert!(known.contains_from(Label::Untrusted) && known.contains_from(Label::Confidential));
        assert_eq!(known.origins[0].label, Some(Label::Confidential));
    }
    let short = "ticket-4f9a77c21b";
    saw(&memory, "web", "read", short);
    saw(&memory, "mail", "echo", short);
    assert_eq!(known(&memory, json!(short)).origins.len(), 2);
}

#[test]
fn a_flood_of_numbers_takes_no_label_away() {
    let memory = memory();
    saw(&memory, "mail", "read", "ticket-4f9a77c21b ann.smith@example.com");
    // As many as the table of values has places, and half as many again.
    let mut text = String::new();
    for number in 0..1_500_000_u64 {
        text.push_str(&format!("{} ", number * 7_919 % 9_000_017 + 1_000_000));
        if text.len() > 1 << 20 {
            saw(&memory, "notes", "echo", &std::mem::take(&mut text));
        }
    }
    for value in ["ticket-4f9a77c21b", "ann.smith@example.com"] {
        assert!(known(&memory, json!(value)).contains_from(Label::Confidential), "{value}");
    }
}

#[test]
fn the_name_of_a_tool_is_looked_up() {
    let memory = memory();
    saw(&memory, "mail", "read", LETTER);
    let known = memory.known_of(LETTER, &Map::new());
    assert_eq!(known.origins[0].argument, Origin::TOOL_NAME);
    assert!(known.contains_from(Label::Confidential));
}

#[test]
fn millions_of_arguments_have_few_origins() {
    let memory = memory();
    saw(&memory, "mail", "read", "ticket-4f9a77c21b");
    let value = Value::from("ticket-4f9a77c21b");
    let arguments = (0..20_000).map(|number| (format!("a{number}"), value.clone())).collect();
    assert!(memory.known(&arguments).origins.len() < 20);
}

#[test]
fn servers_without_a_label_have_that_of_all_others() {
    let labels = json!({"mail": "confidential", "*": "untrusted", "notes": "trusted"});
    let memory = ProvenanceMemory::new(serde_json::from_value(labels.clone()).unwrap());
    saw(&memory, "notes", "read", "x");
    assert!(!memory.known(&Map::new()).is_tainted_by(Label::Untrusted));
    saw(&memory, "anything", "read", LETTER);
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Untrusted));
    assert!(known(&memory, json!(LETTER)).contains_from(Label::Untrusted));
    // What its user says of a server goes before.
    memory.label("anything", Label::Confidential);
    assert!(known(&memory, json!(LETTER)).contains_from(Label::Confidential));
    let again: ServerLabels = serde_json::from_value(labels.clone()).unwrap();
    assert_eq!(serde_json::to_value(again).unwrap(), labels);
    let wrong = serde_json::from_value::<ServerLabels>(json!({"git_*": "trusted"})).unwrap_err().to_string();
    assert!(wrong.contains("`git_*` is no name of a server"), "{wrong}");
}

#[test]
fn what_was_restored_may_have_read_from_servers_that_get_a_label_later() {
    let memory = memory();
    memory.label("notes", Label::Trusted);
    assert!(memory.known(&Map::new()).read.is_empty());
    memory.restored();
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Trusted));
    let memory = ProvenanceMemory::default();
    memory.restored();
    assert!(memory.known(&Map::new()).read.is_empty());
    memory.label("notes", Label::Confidential);
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Confidential));
    let memory = ProvenanceMemory::new(serde_json::from_value(json!({"*": "untrusted"})).unwrap());
    memory.restored();
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Untrusted));
}

#[test]
fn sessions_that_share_a_memory_have_the_labels_of_both() {
    let memory = memory();
    saw(&memory, "notes", "read", LETTER);
    memory
        .label_as(&ProvenanceMemory::new(serde_json::from_value(json!({"notes": "confidential"})).unwrap()));
    assert!(known(&memory, json!(LETTER)).contains_from(Label::Confidential));
    saw(&memory, "web", "read", "x");
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Untrusted));
}

#[test]
fn what_is_decoded_is_bounded() {
    // A run may be hexadecimal from its first or second digit on, and Base64 besides.
    for unit in ["a", "0", "ab", "Q", "/+", "61", "3631", "WVdG"] {
        let text = unit.repeat(20_000);
        let mut given = Vec::new();
        decoded::decoded(&text, |inner| given.push(inner.len()));
        assert!(given.len() <= 3 && given.iter().sum::<usize>() <= 4 * text.len(), "{unit}: {given:?}");
    }
}

#[test]
fn names_that_code_makes_up_take_no_label_away() {
    let memory = memory();
    for number in 0..5_000 {
        saw(&memory, "notes", &format!("tool{number}"), "there is no such tool");
    }
    saw(&memory, "mail", "read", LETTER);
    let known = known(&memory, json!(LETTER));
    assert!(known.contains_from(Label::Confidential), "{known:?}");
    assert_eq!(known.origins[0].server, "mail");
}

#[test]
fn names_are_shortened() {
    let memory = memory();
    saw(&memory, "mail", &"t".repeat(1_000), LETTER);
    let known = memory.known(&Map::from_iter([("x".repeat(100_000), Value::from(LETTER))]));
    assert!(serde_json::to_string(&known).unwrap().len() < 4_000);
}

#[test]
fn other_origins_do_not_hide_the_one_with_a_label() {
    let memory = memory();
    saw(&memory, "mail", "read", LETTER);
    let mut all = LETTER.to_owned();
    for number in 0..30 {
        let text = prose(number, 200);
        saw(&memory, "notes", &format!("tool{number}"), &text);
        all.push_str(&text);
    }
    assert!(known(&memory, json!(all)).contains_from(Label::Confidential));
}

#[test]
fn names_of_arguments_and_words_in_lists_are_data_too() {
    let memory = memory();
    saw(&memory, "mail", "read", LETTER);
    let named = memory.known(&Map::from_iter([(LETTER.to_owned(), Value::from(1))]));
    assert!(named.contains_from(Label::Confidential));
    let words: Vec<&str> = LETTER.split(' ').collect();
    assert!(known(&memory, json!({"words": words})).contains_from(Label::Confidential));
}

#[test]
fn what_is_the_same_throughout_is_nobodys() {
    let memory = memory();
    for text in ["0", "ab", "999999 ", "1000001 ", "iso-8859-1 ", "-=+"] {
        saw(&memory, "mail", "read", &text.repeat(500));
        assert!(known(&memory, json!(text.repeat(100))).origins.is_empty(), "{text}");
    }
}

#[test]
fn a_phrase_in_a_long_text_is_nobodys() {
    // 32 letters in common, of which a fingerprint is kept if it is smaller than those around it.
    let known_phrase = (0..100).find_map(|seed| {
        let mut letters = 0;
        let phrase: String = prose(seed, 100)
            .chars()
            .take_while(|letter| {
                letters += usize::from(letter.is_alphanumeric());
                letters <= 32
            })
            .collect();
        let memory = memory();
        saw(&memory, "mail", "read", &format!("{phrase} {}", prose(500, 500)));
        (!known(&memory, json!(phrase)).origins.is_empty()).then_some((memory, phrase))
    });
    let (memory, phrase) = known_phrase.expect("a phrase that is known");
    for seed in 200..400 {
        let text = format!("{} {phrase} {}", prose(seed, 60), prose(seed + 1_000, 60));
        let known = known(&memory, json!(text));
        assert!(known.origins.is_empty(), "{seed}: {known:?}");
    }
}

#[test]
fn a_label_holds_before_anything_is_entered() {
    let memory = memory();
    let _not_entered = memory.begin("web", "fetch");
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Untrusted));
    memory.restored();
    assert!(memory.known(&Map::new()).is_tainted_by(Label::Confidential));
}

#[test]
fn a_text_that_is_longer_than_a_piece_is_found_throughout() {
    let memory = memory();
    let text = prose(7, 40_000);
    saw(&memory, "mail", "read", &text);
    for begin in (0..text.len() - 300).step_by(997) {
        assert!(
            known(&memory, json!(text[begin..begin + 300])).contains_from(Label::Confidential),
            "{begin}"
        );
    }
}

#[test]
fn every_letter_counts_as_its_lower_case_wherever_it_stands() {
    // That of a few is longer than they are.
    let longer = ('\0'..=char::MAX).filter(|letter| letter.to_string().len() < lower(*letter).len());
    assert!(longer.count() > 2);
    for letter in ('\u{80}'..=char::MAX).filter(|character| character.is_alphanumeric()) {
        let lower = lower(letter);
        for (before, after) in [("", ""), ("", "\n"), ("", "a"), (",", "-b"), ("ab", "%41é")] {
            let expected = format!("{before}{lower}{}", after.replace("%41", "a"));
            let expected = expected.replace(['\n', ',', '-'], "");
            let found = letters::letters(&format!("{before}{letter}{after}"));
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{letter:?}");
        }
        assert_eq!(letters::letters(&letter.to_string().repeat(50)), lower.repeat(50).as_bytes());
    }
}

fn lower(letter: char) -> String {
    letter.to_lowercase().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn enough_letters_in_a_row_are_found_wherever_they_are(
        text in "[a-zA-Z0-9 ,.\\n\"éж漢ȺİẞK]{400,2000}",
        from in 0.0..1.0_f64,
        around in "[a-z ]{0,100}",
        is_long in any::<bool>(),
    ) {
        let memory = memory();
        saw(&memory, "mail", "read", &text);
        let characters: Vec<char> = text.chars().collect();
        let begin = ((characters.len() - 200) as f64 * from) as usize;
        let part: String = characters[begin..begin + 200].iter().collect();
        prop_assume!(letters::letters(&part).len() >= 95);
        let rest = if is_long { prose(from.to_bits(), 300) } else { String::new() };
        let known = known(&memory, json!(format!("{around}{part}{rest}")));
        prop_assert!(known.contains_from(Label::Confidential), "{part:?}");
    }

    #[test]
    fn other_texts_are_not(text in "[a-z ]{100,2000}", other in "[a-z ]{100,2000}") {
        let memory = memory();
        saw(&memory, "mail", "read", &text);
        prop_assert!(known(&memory, json!(other)).origins.is_empty());
    }

    #[test]
    fn nothing_panics(result in ".{0,300}", escaped in "(\\\\|%|&|#|;|u|x|n|é|[0-9a-f]|\u{10ffff}){0,300}") {
        let memory = memory();
        saw(&memory, "mail", "read", &escaped);
        saw(&memory, "mail", "read", &result);
        drop(known(&memory, json!([escaped, {"k": result}])));
    }
}
