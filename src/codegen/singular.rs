//! English plurals, as far as property names use them: the class of an item of `attachments` is `Attachment`.
//!
//! The results are those of the Python package `inflect` for CamelCase words, because the names that users know come
//! from it; so `Status` is the plural of `Statu`, while `Address` has no singular.

/// Endings whose singular is something else than the rules below would say, longest match first.
const IRREGULAR: [(&str, &str); 36] = [
    ("children", "child"),
    ("people", "person"),
    ("geese", "goose"),
    ("teeth", "tooth"),
    ("feet", "foot"),
    ("mice", "mouse"),
    ("men", "man"),
    ("phenomena", "phenomenon"),
    ("criteria", "criterion"),
    ("addenda", "addendum"),
    ("errata", "erratum"),
    ("strata", "stratum"),
    ("memoranda", "memorandum"),
    ("millennia", "millennium"),
    ("bacteria", "bacterium"),
    ("corpora", "corpus"),
    ("genera", "genus"),
    ("alumni", "alumnus"),
    ("stimuli", "stimulus"),
    ("nuclei", "nucleus"),
    ("bacilli", "bacillus"),
    ("alumnae", "alumna"),
    ("vertebrae", "vertebra"),
    ("larvae", "larva"),
    ("appendices", "appendix"),
    ("vertices", "vertex"),
    ("codices", "codex"),
    ("radices", "radix"),
    ("houses", "house"),
    ("persons", "person"),
    ("quizzes", "quizz"),
    ("oxen", "ox"),
    ("dice", "die"),
    ("viruses", "virus"),
    ("shoes", "shoe"),
    ("leaves", "leaf"),
];

/// Endings of words that are the same in the plural.
const UNINFLECTED: [&str; 12] =
    ["fish", "deer", "sheep", "nese", "rese", "lese", "mese", "pox", "itis", "series", "species", "ois"];

/// Whole words that are the same in the plural.
const UNINFLECTED_WORDS: [&str; 26] = [
    "access",
    "bison",
    "chassis",
    "contretemps",
    "corps",
    "debris",
    "diabetes",
    "elk",
    "gallows",
    "graffiti",
    "headquarters",
    "herpes",
    "innings",
    "jackanapes",
    "mackerel",
    "mews",
    "moose",
    "mumps",
    "news",
    "pincers",
    "pliers",
    "rabies",
    "salmon",
    "scissors",
    "swine",
    "trout",
];

/// Words in `…ses` whose singular ends in `s`.
const SINGULAR_IN_S: [&str; 17] = [
    "acropolis",
    "aegis",
    "alias",
    "asbestos",
    "bathos",
    "bias",
    "caddis",
    "cannabis",
    "canvas",
    "chaos",
    "christmas",
    "cosmos",
    "ethos",
    "gas",
    "pathos",
    "rhinoceros",
    "trellis",
];

/// Words in `…xes`, `…ches`, `…oes`, `…ies` and `…uses` that only lose their `s`.
const SILENT_E: [&str; 38] = [
    "axes",
    "deluxes",
    "annexes",
    "aches",
    "headaches",
    "caches",
    "microaches",
    "avalanches",
    "niches",
    "quiches",
    "creches",
    "psyches",
    "toothaches",
    "toes",
    "foes",
    "goes",
    "canoes",
    "hoes",
    "floes",
    "aloes",
    "woes",
    "does",
    "throes",
    "ties",
    "pies",
    "lies",
    "dies",
    "movies",
    "cookies",
    "zombies",
    "calories",
    "selfies",
    "hippies",
    "brownies",
    "uses",
    "causes",
    "clauses",
    "pauses",
];

/// The singular of a plural, or `None` if the word is no plural.
pub(super) fn singular(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    if lower.len() != word.len() {
        // Letters whose lower case is longer do not occur in English plurals.
        return None;
    }
    let cut = |count: usize, ending: &str| Some(format!("{}{ending}", &word[..word.len() - count]));
    let ends = |endings: &[&str]| endings.iter().any(|ending| lower.ends_with(ending));
    if UNINFLECTED_WORDS.contains(&lower.as_str()) || ends(&UNINFLECTED) {
        return Some(word.to_owned());
    }
    for (plural, form) in IRREGULAR {
        if lower.ends_with(plural) {
            // What both begin with keeps its case.
            let shared = plural.bytes().zip(form.bytes()).take_while(|(a, b)| a == b).count();
            return cut(plural.len() - shared, &form[shared..]);
        }
    }
    if !lower.ends_with('s') || lower.ends_with("ss") || lower.len() < 2 {
        return None;
    }
    if SILENT_E.contains(&lower.as_str()) {
        return cut(1, "");
    }
    if lower.strip_suffix("es").is_some_and(|stem| SINGULAR_IN_S.contains(&stem))
        || ends(&["uses"]) && is_us(&lower)
    {
        return cut(2, "");
    }
    if ends(&["zzes"]) {
        return cut(3, "");
    }
    if ends(&["eses", "sses", "ches", "shes", "xes", "oes"]) {
        return cut(2, "");
    }
    if let Some(stem) = lower.strip_suffix("ves") {
        if ["el", "al", "ol", "ar", "ea"].iter().any(|end| stem.ends_with(end)) && !stem.ends_with("dea") {
            return cut(3, "f");
        }
        if ["ni", "li", "wi"].iter().any(|end| stem.ends_with(end)) {
            return cut(3, "fe");
        }
    }
    if ends(&["ies"]) {
        return cut(3, "y");
    }
    cut(1, "")
}

/// Whether a word in `…uses` is the plural of one in `…us`.
fn is_us(lower: &str) -> bool {
    [
        "status", "virus", "bonus", "campus", "census", "focus", "genius", "locus", "minus", "nexus", "plus",
        "bus", "radius",
    ]
    .iter()
    .any(|singular| lower.strip_suffix("es").is_some_and(|stem| stem.ends_with(singular)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_lose_their_ending() {
        for (plural, expected) in [
            ("Attachments", "Attachment"),
            ("ToRecipients", "ToRecipient"),
            ("Entries", "Entry"),
            ("Addresses", "Address"),
            ("Branches", "Branch"),
            ("Indices", "Indice"),
            ("People", "Person"),
            ("Children", "Child"),
            ("Databases", "Database"),
            ("Statuses", "Status"),
            ("Shelves", "Shelf"),
            ("Keys", "Key"),
            ("Series", "Series"),
        ] {
            assert_eq!(singular(plural).as_deref(), Some(expected), "{plural}");
        }
    }

    #[test]
    fn other_words_have_no_singular() {
        for word in ["Address", "Data", "Metadata", "Filter", "S"] {
            assert_eq!(singular(word), None, "{word}");
        }
    }
}

#[cfg(test)]
mod scratch {
    #[test]
    fn scratch_compare() {
        let Ok(table) = std::fs::read_to_string("/tmp/w/codegen-ref/singular.tsv") else { return };
        let mut wrong = 0;
        for line in table.lines() {
            let (word, expected) = line.split_once('\t').unwrap();
            let got = super::singular(word).unwrap_or("-".to_owned());
            if got != expected {
                wrong += 1;
                eprintln!("{word}: {expected} not {got}");
            }
        }
        panic!("{wrong} wrong");
    }
}
