//! English plurals, as far as property names use them: the class of an item of `attachments` is `Attachment`.
//!
//! The results are those of the Python package `inflect` for CamelCase words, because the names that users know come
//! from it; so `Metadata` is the plural of `Metadatum`, and `Address` has no singular.

/// Endings whose singular is something else than the rules below would say.
const IRREGULAR: &str = "\
    people:person geese:goose teeth:tooth feet:foot mice:mouse men:man data:datum phenomena:phenomenon \
    criteria:criterion addenda:addendum agenda:agendum errata:erratum strata:stratum bacteria:bacterium \
    corpora:corpus genera:genus alumni:alumnus alumnae:alumna vertebrae:vertebra codices:codex houses:house \
    shoes:shoe hooves:hoof quizzes:quiz";

/// Whole words whose singular is something else than the rules below would say.
const IRREGULAR_WORDS: &str = "\
    children:child oxen:ox dice:die buzzes:buzz lenses:lens loaves:loaf thieves:thief carries:carrie \
    underlies:underlie opera:opus";

/// Endings of words that are the same in the plural.
const UNINFLECTED: &str = "\
    fish deer sheep nese rese lese mese guese pox itis series species ois craft information equipment \
    furniture baggage luggage machinery headquarters debris forceps trousers";

/// Whole words that are the same in the plural.
const UNINFLECTED_WORDS: &str = "\
    chassis contretemps corps diabetes gallows graffiti herpes innings mackerel mews mumps news pincers \
    pliers rabies salmon scissors swine you";

/// Words in `…us` that are no plurals, and whose plural nobody would write.
const SINGULAR_IN_US: &str = "apparatus coitus hiatus impetus nexus plexus prospectus sinus status";

/// Stems of words in `…ses` whose singular ends in `s`.
const SINGULAR_IN_S: &str = "\
    acropolis aegis alias asbestos bathos bias caddis cannabis canvas chaos christmas cosmos ethos gas \
    pathos trellis";

/// Words in `…es` that only lose their `s`, against the rule for their ending.
const SILENT_E: &str = "\
    abuses aches aloes applauses avalanches axes blouses brownies caches calories canoes causes clauses \
    cookies creches does excuses floes foes fuses goalies headaches hippies hoes hotties lies misuses movies \
    muses niches overuses pauses peruses pies prairies psyches quiches recluses reuses rookies ruses \
    smoothies sorties spouses throes ties toes toothaches transfuses uses woes zombies genies collies";

/// The singular of a plural, or `None` if the word is no plural.
pub(super) fn singular(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let is = |words: &str| words.split(' ').any(|each| each == lower);
    let ends = |endings: &str| endings.split(' ').any(|ending| lower.ends_with(ending));
    let cut = |count: usize, ending: &str| Some(format!("{}{ending}", &word[..word.len() - count]));
    if is(UNINFLECTED_WORDS) || ends(UNINFLECTED) {
        return Some(word.to_owned());
    }
    let pairs = |words: &'static str| words.split(' ').filter_map(|pair| pair.split_once(':'));
    let whole = pairs(IRREGULAR_WORDS).find(|(plural, _)| lower == *plural);
    if let Some((plural, form)) =
        whole.or_else(|| pairs(IRREGULAR).find(|(plural, _)| lower.ends_with(plural)))
    {
        // What both begin with keeps its case.
        let shared = plural.bytes().zip(form.bytes()).take_while(|(a, b)| a == b).count();
        return cut(plural.len() - shared, &form[shared..]);
    }
    if !lower.ends_with('s') || lower.len() < 2 || lower.ends_with("ss") || is(SINGULAR_IN_US) {
        return None;
    }
    if is(SILENT_E) {
        return cut(1, "");
    }
    if lower.strip_suffix("es").is_some_and(|stem| SINGULAR_IN_S.split(' ').any(|each| each == stem)) {
        return cut(2, "");
    }
    if ends("zzes") {
        return cut(3, "");
    }
    if ends("uses eses sses ches shes xes oes") {
        return cut(2, "");
    }
    if let Some(stem) = lower.strip_suffix("ves").filter(|stem| !stem.ends_with("resol")) {
        if ["el", "al", "ol", "ar", "ea"].iter().any(|end| stem.ends_with(end)) && !stem.ends_with("dea") {
            return cut(3, "f");
        }
        if ["ni", "li", "wi"].iter().any(|end| stem.ends_with(end)) {
            return cut(3, "fe");
        }
    }
    if ends("ies") { cut(3, "y") } else { cut(1, "") }
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
            ("Data", "Datum"),
        ] {
            assert_eq!(singular(plural).as_deref(), Some(expected), "{plural}");
        }
    }

    #[test]
    fn other_words_have_no_singular() {
        for word in ["Address", "Status", "Access", "Filter", "S"] {
            assert_eq!(singular(word), None, "{word}");
        }
    }
}
