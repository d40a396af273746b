//! Python identifiers made from wire names: fields, enum members, classes, modules. Purely lexical: `names` has those
//! that are never free, `scope` those that are taken by others.
//!
//! The rules are those of datamodel-code-generator, so that code written against its output finds the same names.

use super::reserved;

/// Stands in front of a name that Python or pydantic would not accept as it begins.
const PREFIX: &str = "field";

/// The field that holds the property `wire`: `resource-group` → `resource_group`, `from` → `from_`, `_id` → `field_id`.
pub(super) fn field(wire: &str) -> String {
    let name = word(wire);
    if reserved::is_refused_as_field(&name) { name + "_" } else { name }
}

/// The name of the enum member for the text `value`.
pub(super) fn member(value: &str) -> String {
    let name = word(value);
    // `mro` is a method of every class, and an enum refuses a member of that name.
    if reserved::is_keyword(&name) || name == "mro" { name + "_" } else { name }
}

/// The class for what `wire` names: `contact_info` → `ContactInfo`.
pub(super) fn class(wire: &str) -> String {
    let word = word(wire);
    let mut name = String::with_capacity(word.len());
    for part in word.split('_') {
        let mut characters = part.chars();
        if let Some(first) = characters.next() {
            name.extend(first.to_uppercase());
            name.push_str(characters.as_str());
        }
    }
    name
}

/// The longest name of a module. File names are limited to 255 bytes, of which a number and an ending take some.
const MODULE_CHARS: usize = 200;

/// The module of the tool `wire`: what is not a letter or digit of ASCII becomes `_`, and all of it lower case.
pub(super) fn module(wire: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = wire.chars().take(MODULE_CHARS).map(letter).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    // What Python and IPython look up in a package has such names: `__class__`, `_repr_pretty_`.
    let is_pythons = name.len() > 2 && name.starts_with('_') && name.ends_with('_');
    if is_pythons || reserved::is_keyword(&name) { name + "_" } else { name }
}

/// Letters, digits and underscores of `wire`, not beginning with a digit or an underscore.
fn word(wire: &str) -> String {
    let wire = wire.strip_prefix('#').unwrap_or(wire);
    let mut name: String = wire.chars().map(|c| if is_word_character(c) { c } else { '_' }).collect();
    if name.is_empty() {
        name.push('_');
    }
    if name.starts_with('_') {
        name.insert_str(0, PREFIX);
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        name = format!("{PREFIX}_{name}");
    }
    name
}

/// Whether every Python since 3.10 accepts `c` inside an identifier and leaves it as it is.
///
/// Python normalises identifiers (NFKC), so letters that normalisation would change are left out, and so are
/// scripts whose letters younger versions of Unicode still add to.
fn is_word_character(c: char) -> bool {
    c == '_'
        || c.is_ascii_alphanumeric()
        || c.is_alphabetic()
            && matches!(c,
                '\u{c0}'..='\u{131}' | '\u{134}'..='\u{13e}' | '\u{141}'..='\u{148}' | '\u{14a}'..='\u{17e}' // Latin
                | '\u{386}' | '\u{388}'..='\u{3ce}' // Greek
                | '\u{400}'..='\u{481}' | '\u{48a}'..='\u{52f}' // Cyrillic
                | '\u{5d0}'..='\u{5ea}' | '\u{620}'..='\u{64a}' // Hebrew, Arabic
                | '\u{904}'..='\u{939}' | '\u{e01}'..='\u{e30}' // Devanagari, Thai
                | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' // Hiragana, Katakana
                | '\u{4e00}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7a3}') // Han, Hangul
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_valid_names_and_repair_the_others() {
        for (wire, expected) in [
            ("query", "query"),
            ("camelCase", "camelCase"),
            ("resource-group", "resource_group"),
            ("from", "from_"),
            ("_id", "field_id"),
            ("1a", "field_1a"),
            ("", "field_"),
            ("@type", "field_type"),
            ("$filter", "field_filter"),
            ("#tag", "tag"),
            ("é/x", "é_x"),
            ("schema", "schema_"),
            ("int", "int_"),
            ("model_name", "model_name"),
            ("match", "match"),
        ] {
            assert_eq!(field(wire), expected, "{wire}");
        }
    }

    #[test]
    fn members_follow_the_values() {
        for (value, expected) in [
            ("created-asc", "created_asc"),
            ("", "field_"),
            ("mro", "mro_"),
            ("class", "class_"),
            (" A", "field_A"),
        ] {
            assert_eq!(member(value), expected, "{value}");
        }
    }

    #[test]
    fn classes_are_in_upper_camel_case() {
        for (wire, expected) in [
            ("contact_info", "ContactInfo"),
            ("camelCaseThing", "CamelCaseThing"),
            ("ABCThing", "ABCThing"),
            ("_id", "FieldId"),
            ("1a", "Field1a"),
        ] {
            assert_eq!(class(wire), expected, "{wire}");
        }
    }

    #[test]
    fn modules_are_lower_case_ascii() {
        for (wire, expected) in [
            ("Search.Repos", "search_repos"),
            ("import", "import_"),
            ("2fa", "_2fa"),
            ("é", "_"),
            ("", "_"),
            ("__path__", "__path___"),
            ("_repr_pretty_", "_repr_pretty__"),
        ] {
            assert_eq!(module(wire), expected, "{wire}");
        }
        assert_eq!(module(&"x".repeat(1_000)).len(), MODULE_CHARS);
    }
}
