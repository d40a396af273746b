//! The observed results of a tool that declares no output schema: JSON texts → shape → JSON Schema.

mod shape;
mod text;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use shape::ObservedShape;
use text::ObservedContent;

/// The type of a tool's results, inferred from observed ones. More results widen it, none narrows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// Whether a result is a sequence of JSON texts, each of which has the shape.
    #[serde(default)]
    is_sequence: bool,
    shape: ObservedShape,
}

/// Why no type can be inferred from results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// There are none.
    #[error("infer a result type: no results were given")]
    NoResults,
    /// A result holds no JSON object and no JSON array.
    #[error(
        "infer a result type: result {number} holds no JSON object or array; it begins with {beginning:?}\n\
         hint: write a function that parses it"
    )]
    NotJson {
        /// Which of the results, beginning with 1.
        number: usize,
        /// The beginning of the text.
        beginning: String,
    },
    /// The inferred type is too large to be useful.
    #[error(
        "infer a result type: the results have more than {MAX_SIZE} properties in all\n\
         hint: give fewer results, or write a function that takes what you need from them"
    )]
    TooLarge,
}

/// The most spots of a shape. The most that we know of a real server's result are some hundred.
const MAX_SIZE: usize = 5_000;

/// The part of a result that an error shows.
const SHOWN_CHARS: usize = 60;

impl Observed {
    /// Infers a type from `results`: texts that contain JSON, or structured results.
    ///
    /// # Errors
    /// See [`ObserveError`].
    pub fn of(results: &[Value]) -> Result<Self, ObserveError> {
        let mut observed = Self::default();
        observed.observe(results)?;
        Ok(observed)
    }

    /// Adds more results; all of them, or on an error none.
    ///
    /// # Errors
    /// See [`ObserveError`].
    pub fn observe(&mut self, results: &[Value]) -> Result<(), ObserveError> {
        if results.is_empty() {
            return Err(ObserveError::NoResults);
        }
        let contents = results.iter().enumerate().map(|(position, result)| {
            text::content(result)
                .ok_or_else(|| ObserveError::NotJson { number: position + 1, beginning: beginning(result) })
        });
        let mut wider = self.clone();
        for content in contents.collect::<Result<Vec<_>, _>>()? {
            let values = match content {
                ObservedContent::Value(value) => vec![value],
                ObservedContent::Sequence(values) => {
                    wider.is_sequence = true;
                    values
                }
            };
            values.iter().for_each(|value| wider.shape.merge(ObservedShape::of(value)));
        }
        if wider.shape.size() > MAX_SIZE {
            return Err(ObserveError::TooLarge);
        }
        *self = wider;
        Ok(())
    }

    /// Whether a result is to be read as a sequence of JSON texts.
    pub(super) fn is_sequence(&self) -> bool {
        self.is_sequence
    }

    /// The JSON Schema of a result's content.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let value = self.shape.schema();
        if self.is_sequence {
            Map::from_iter([("type".to_owned(), json!("array")), ("items".to_owned(), value.into())])
        } else {
            value
        }
    }
}

fn beginning(result: &Value) -> String {
    let text = result.as_str().map_or_else(|| result.to_string(), |text| text.trim().to_owned());
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(results: &[Value], schema: Value) {
        let observed = Observed::of(results).unwrap();
        assert_eq!(Value::Object(observed.schema()), schema, "{results:?}");
        // What is kept between sessions is all that is known.
        let kept = serde_json::from_str::<Observed>(&serde_json::to_string(&observed).unwrap()).unwrap();
        assert_eq!(kept, observed);
    }

    #[test]
    fn the_schema_admits_all_that_was_seen() {
        check(
            &[json!(r#"{"a": 1, "b": null, "c": "x"}"#), json!(r#"{"a": 1.5, "b": [true], "d": {}}"#)],
            json!({
                "type": "object",
                "properties": {
                    "a": {"type": "number"},
                    "b": {"type": ["array", "null"], "items": {"type": "boolean"}},
                    "c": {"type": "string"},
                    "d": {"type": "object", "properties": {}},
                },
                "required": ["a", "b"],
            }),
        );
        check(&[json!("[]"), json!("[1]")], json!({"type": "array", "items": {"type": "integer"}}));
        check(&[json!({"a": null})], json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}));
    }

    #[test]
    fn a_result_of_several_texts_is_a_list_of_what_each_holds() {
        let item = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        let list = json!({"type": "array", "items": item});
        check(&[json!("{\"a\": 1}\n{\"a\": 2}")], list.clone());
        // A list of one cannot be distinguished from the one.
        check(&[json!(r#"{"a": 1}"#), json!("{\"a\": 1}\n{\"a\": 2}")], list);
        check(&[json!(r#"{"a": 1}"#)], item);
    }

    #[test]
    fn names_that_are_data_make_a_map() {
        let of_days = json!(r#"{"2026-01-01": 3, "2026-01-02": 4.5}"#);
        check(&[of_days], json!({"type": "object", "additionalProperties": {"type": "number"}}));
        let many: Map<String, Value> = (0..600).map(|number| (format!("k{number}"), json!("x"))).collect();
        check(&[many.into()], json!({"type": "object", "additionalProperties": {"type": "string"}}));
    }

    #[test]
    fn the_format_of_texts_is_kept_while_all_have_it() {
        let check_format = |results: &[&str], schema: Value| {
            let results: Vec<_> = results.iter().map(|text| json!({"a": text})).collect();
            assert_eq!(Observed::of(&results).unwrap().schema()["properties"]["a"], schema);
        };
        check_format(&["2026-01-01"], json!({"type": "string", "format": "date"}));
        check_format(&["2026-01-01T10:00:00Z"], json!({"type": "string", "format": "date-time"}));
        check_format(&["https://example.com/x"], json!({"type": "string", "format": "uri"}));
        check_format(&["2026-01-01", "soon"], json!({"type": "string"}));
        check_format(&["2026-01-01", "2026-01-01T10:00:00Z", "2026-01-01"], json!({"type": "string"}));
    }

    #[test]
    fn what_is_no_json_is_refused_and_nothing_is_learnt() {
        let mut observed = Observed::of(&[json!("[1]")]).unwrap();
        let before = observed.clone();
        let error = observed.observe(&[json!("{}"), json!("It is sunny.")]).unwrap_err();
        let beginning = "It is sunny.".to_owned();
        assert_eq!(error, ObserveError::NotJson { number: 2, beginning });
        assert_eq!(observed, before);
        for result in [json!("5"), json!(null), json!(""), json!("\"x\"")] {
            assert!(matches!(Observed::of(&[result]), Err(ObserveError::NotJson { number: 1, .. })));
        }
        assert_eq!(Observed::of(&[]), Err(ObserveError::NoResults));
    }

    #[test]
    fn the_deepest_json_that_can_be_read_is_cut() {
        let check_nested = |open: &str, close: &str| {
            let nested = format!("{}[]{}", open.repeat(100), close.repeat(100));
            let observed = Observed::of(&[json!(nested)]).unwrap();
            // As it is kept: within the list of tools of a document.
            let kept = json!({"tools": [{"observed": observed}]}).to_string();
            let read: Value = serde_json::from_str(&kept).unwrap();
            assert_eq!(
                serde_json::from_value::<Observed>(read["tools"][0]["observed"].clone()).unwrap(),
                observed
            );
        };
        check_nested("[", "]");
        check_nested(r#"{"a":"#, "}");
    }

    #[test]
    fn what_grows_without_bounds_is_refused_and_nothing_is_learnt() {
        let wide = |prefix: &str| -> Value {
            let inner: Map<String, Value> =
                (0..90).map(|number| (format!("{prefix}{number}"), json!(1))).collect();
            (0..40).map(|number| (format!("{prefix}{number}"), json!(inner))).collect::<Map<_, _>>().into()
        };
        let mut observed = Observed::of(&[wide("a")]).unwrap();
        let before = observed.clone();
        assert_eq!(observed.observe(&[wide("b")]), Err(ObserveError::TooLarge));
        assert_eq!(observed, before);
    }
}
