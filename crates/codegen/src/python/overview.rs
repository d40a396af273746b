//! The overview of a tool's call, in a few lines: the docstring of its module. Its signature is Python, and the runtime
//! (`ipybox_modules.py`) gives it to `run`.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;

use serde_json::Value;

use super::literal;
use crate::classes::SchemaClasses;
use crate::model::{ClassBody, ClassId, ClassModel, ExtraProperties, ModelField, PythonType};
use crate::scope::{NameNumbering, NameScope};
use crate::{CallOverview, Tool};

/// The longest signature, in characters, that is written on one line if none of its parameters needs an explanation.
const LINE_CHARS: usize = 100;
/// The part of a text that is shown, in characters: all of it is with the function and the classes.
const SUMMARY_CHARS: usize = 120;
const PARAMETER_CHARS: usize = 50;
/// The longest list of admitted values, in characters, that is written in place of the enum's name.
const VALUES_CHARS: usize = 120;
/// The longest default that is shown, in characters.
const DEFAULT_CHARS: usize = 40;
/// The length of the parameters that a list of tools shows, in bytes.
const CALL_BYTES: usize = 260;
/// The length of the fields of a result that a list of tools shows, in bytes.
const RESULT_BYTES: usize = 160;
/// The length of the lines about classes that parameters and results are made of, in characters.
const CLASSES_CHARS: usize = 400;
/// The length of the count of a class's fields that are not shown.
const MORE_CHARS: usize = 14;

/// The docstring for the module of `tool`, whose schemas came to the classes of `sides`, the arguments first.
pub(super) fn overview(tool: &Tool, sides: &[SchemaClasses]) -> String {
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let mut text = match first_sentence(description, SUMMARY_CHARS) {
        summary if summary.is_empty() => format!("Call the tool `{}`.", literal::comment(&tool.name)),
        summary => literal::comment(&summary),
    };
    let result = result_name(tool, sides);
    text.push_str("\n\n");
    text.push_str(&signature(&tool.name, &sides[0], result));
    let mut classes = String::new();
    for (position, side) in sides.iter().enumerate() {
        let lines = Lines { side, seen: HashSet::new(), text: &mut classes };
        lines.write(position > 0);
    }
    if !classes.is_empty() {
        text.push_str("\n\n");
        text.push_str(classes.trim_end());
    }
    text
}

/// The call in few words, for lists of tools.
pub(crate) fn call_overview(tool: &Tool, sides: &[SchemaClasses]) -> CallOverview {
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let result = match (&tool.output_schema, result_name(tool, sides)) {
        (Some(_), "Result | None") => short_result(&sides[1]) + " | None",
        (Some(_), _) => short_result(&sides[1]),
        (None, name) => name.to_owned(),
    };
    let mut classes = String::new();
    Lines { side: &sides[0], seen: HashSet::new(), text: &mut classes }.write(false);
    CallOverview {
        summary: literal::comment(&first_sentence(description, SUMMARY_CHARS)),
        signature: format!("({}) -> {result}", short_parameters(&sides[0])),
        classes: classes.trim_end().to_owned(),
        overview: overview(tool, sides),
    }
}

/// The annotation of what `run` returns.
pub(super) fn result_name(tool: &Tool, sides: &[SchemaClasses]) -> &'static str {
    match tool.output_schema {
        Some(_) if sides.get(1).is_some_and(SchemaClasses::is_nullable) => "Result | None",
        Some(_) => "Result",
        None => "ToolResult",
    }
}

/// The parameters on one line, the required ones first; a long end is only counted.
fn short_parameters(classes: &SchemaClasses) -> String {
    let ClassBody::Model(model) = &classes.0[0].body else { return "**fields: Any".to_owned() };
    let mut fields: Vec<&ModelField> = model.fields.iter().collect();
    fields.sort_by_key(|field| !field.is_required);
    let mut parameters: Vec<String> = fields.into_iter().map(|field| parameter(field, classes)).collect();
    if let ExtraProperties::Typed(ty) = &model.extra {
        parameters.push(further(ty, &model.fields, classes));
    }
    within(&parameters, CALL_BYTES)
}

/// The class of the result with its fields on one line; a long end is only counted.
fn short_result(classes: &SchemaClasses) -> String {
    let class = &classes.0[0];
    let fields = match &class.body {
        ClassBody::Model(model) => {
            let mut fields: Vec<&ModelField> = model.fields.iter().collect();
            fields.sort_by_key(|field| !field.is_required);
            fields.into_iter().map(|field| parameter(field, classes)).collect()
        }
        ClassBody::Root(ty) => vec![format!("root: {}", brief(ty, classes))],
        ClassBody::Enum(_) | ClassBody::Vacant => Vec::new(),
    };
    if fields.is_empty() {
        class.name.clone()
    } else {
        format!("{}({})", class.name, within(&fields, RESULT_BYTES))
    }
}

/// The first of `parameters`, as many as `limit` bytes hold, but one at least; the others are only counted.
fn within(parameters: &[String], limit: usize) -> String {
    let mut text = String::new();
    for (position, parameter) in parameters.iter().enumerate() {
        let separator = if text.is_empty() { "" } else { ", " };
        if position > 0 && text.len() + parameter.len() > limit {
            let _infallible = write!(text, "{separator}…{} more", parameters.len() - position);
            break;
        }
        let _infallible = write!(text, "{separator}{parameter}");
    }
    text
}

/// `run(…) -> Result`.
fn signature(tool_name: &str, classes: &SchemaClasses, result: &str) -> String {
    let ClassBody::Model(model) = &classes.0[0].body else {
        return format!("run(**fields: Any) -> {result}");
    };
    let known = words(&format!("{tool_name} {FILLERS}"));
    let mut fields: Vec<&ModelField> = model.fields.iter().collect();
    fields.sort_by_key(|field| !field.is_required);
    let mut parameters: Vec<(String, String)> =
        fields.into_iter().map(|field| (parameter(field, classes), explanation(field, &known))).collect();
    if let ExtraProperties::Typed(ty) = &model.extra {
        parameters.push((further(ty, &model.fields, classes), String::new()));
    }
    let is_plain = parameters.iter().all(|(_, explanation)| explanation.is_empty());
    let joined = parameters.iter().map(|(parameter, _)| parameter.as_str()).collect::<Vec<_>>().join(", ");
    if is_plain && joined.chars().count() <= LINE_CHARS {
        return format!("run({joined}) -> {result}");
    }
    let mut text = "run(\n".to_owned();
    for (parameter, explanation) in parameters {
        // Every space is one that a model reads.
        let comment = if explanation.is_empty() { String::new() } else { format!(" # {explanation}") };
        let _infallible = writeln!(text, " {parameter},{comment}");
    }
    let _infallible = write!(text, ") -> {result}");
    text
}

/// The parameter for properties that the tool does not name. No other parameter has its name.
fn further(ty: &PythonType, fields: &[ModelField], classes: &SchemaClasses) -> String {
    let mut taken = NameScope::with(fields.iter().map(|field| field.name.as_str()));
    let name = taken.take("fields".to_owned(), NameNumbering::Underscore);
    format!("**{name}: {}", brief(ty, classes))
}

fn parameter(field: &ModelField, classes: &SchemaClasses) -> String {
    let ty = if field.is_required { field.ty.clone() } else { field.ty.without_null() };
    let written = format!("{}: {}", field.name, brief(&ty, classes));
    if field.is_required {
        return written;
    }
    let default = literal::value(field.default.as_ref().unwrap_or(&Value::Null));
    let default = if default.chars().count() > DEFAULT_CHARS { "..." } else { &default };
    format!("{written} = {default}")
}

/// The explanation of a field, beyond its name and what is `known` besides.
fn explanation(field: &ModelField, known: &HashSet<String>) -> String {
    let text = first_sentence(field.doc.description.as_deref().unwrap_or_default(), PARAMETER_CHARS);
    let text = text.trim_end_matches('.');
    let own = words(&field.wire);
    let is_news = words(text).iter().any(|word| !own.contains(word) && !known.contains(word));
    let notes = field.doc.notes.iter().map(String::as_str).filter(|note| note.starts_with("format: "));
    let parts: Vec<&str> = is_news.then_some(text).into_iter().chain(notes).collect();
    literal::comment(&parts.join("; "))
}

/// Words that say nothing of a parameter.
const FILLERS: &str =
    "a an and by for from if in is of on optional required specified the this to use used which with";

/// The words of a text or of a name, in lower case and without the `s` of the plural.
fn words(text: &str) -> HashSet<String> {
    let mut spaced = String::with_capacity(text.len());
    let mut was_lower = false;
    for character in text.chars() {
        if was_lower && character.is_uppercase() {
            spaced.push(' ');
        }
        was_lower = character.is_lowercase();
        spaced.extend(character.to_lowercase());
    }
    let words = spaced.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(|word| word.trim_end_matches('s').to_owned()).collect()
}

/// The lines for classes, each once.
struct Lines<'a> {
    side: &'a SchemaClasses,
    seen: HashSet<ClassId>,
    text: &'a mut String,
}

impl Lines<'_> {
    /// Writes a line for each class that can be reached from the first one, and for that one if it `is_included` too.
    fn write(mut self, is_included: bool) {
        let mut waiting = VecDeque::from([ClassId(0)]);
        self.seen.insert(ClassId(0));
        while let Some(id) = waiting.pop_front() {
            let class = self.side.get(id);
            let mut body = class.body.clone();
            body.for_each_class(&mut |id| {
                if self.seen.insert(*id) {
                    waiting.push_back(*id);
                }
            });
            let is_first = id == ClassId(0);
            if class.is_duplicate || (is_first && !is_included) {
                continue;
            }
            let line = match &class.body {
                ClassBody::Model(model) => {
                    let fields = self.fields(model);
                    let room =
                        CLASSES_CHARS.saturating_sub(self.text.len() + class.name.len() + "()\n".len());
                    let whole = fields.join(", ");
                    let fields = if whole.len() <= room {
                        whole
                    } else {
                        within(&fields, room.saturating_sub(MORE_CHARS))
                    };
                    format!("{}({fields})\n", class.name)
                }
                ClassBody::Root(ty) if is_first => format!("{} = {}\n", class.name, brief(ty, self.side)),
                ClassBody::Enum(_) if !is_shown_by_values(id, self.side) => self.values(id),
                _ => continue,
            };
            if self.text.chars().count() + line.chars().count() > CLASSES_CHARS {
                self.text.push_str("…\n");
                return;
            }
            self.text.push_str(&line);
        }
    }

    fn fields(&self, model: &ClassModel) -> Vec<String> {
        let mut fields: Vec<&ModelField> = model.fields.iter().collect();
        fields.sort_by_key(|field| !field.is_required);
        fields.into_iter().map(|field| parameter(field, self.side)).collect()
    }

    fn values(&self, id: ClassId) -> String {
        let class = self.side.get(id);
        let ClassBody::Enum(members) = &class.body else { return String::new() };
        let values: Vec<_> = members.iter().map(|member| literal::value(&member.value)).collect();
        let mut text = values.join(" | ");
        if let Some((end, _)) = text.char_indices().nth(2 * VALUES_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        format!("{} = {text}\n", class.name)
    }
}

/// A type in as few words as a caller needs: without what is checked besides.
fn brief(ty: &PythonType, classes: &SchemaClasses) -> String {
    brief_within(ty, classes, 0)
}

/// The number of members of a union or a tuple that are shown.
const MEMBERS: usize = 8;
/// The number of named types, no classes, that may lead to each other before only their name is shown.
const ROOTS_DEEP: usize = 4;

fn brief_within(ty: &PythonType, classes: &SchemaClasses, depth: usize) -> String {
    let inner = |ty: &PythonType| brief_within(ty, classes, depth);
    let joined = |types: &[PythonType], by: &str| {
        let mut parts: Vec<_> = types.iter().take(MEMBERS).map(inner).collect();
        parts.extend((types.len() > MEMBERS).then(|| "...".to_owned()));
        parts.join(by)
    };
    match ty {
        PythonType::Any | PythonType::Never => "Any".to_owned(),
        PythonType::Null => "None".to_owned(),
        PythonType::Bool => "bool".to_owned(),
        PythonType::Int => "int".to_owned(),
        PythonType::Float => "float".to_owned(),
        PythonType::Str => "str".to_owned(),
        PythonType::Literal(values) => {
            let values = values.iter().map(literal::value).collect::<Vec<_>>().join(" | ");
            if values.chars().count() > VALUES_CHARS { "str".to_owned() } else { values }
        }
        PythonType::List(item) => format!("list[{}]", inner(item)),
        PythonType::Tuple(items) if items.is_empty() => "tuple[()]".to_owned(),
        PythonType::Tuple(items) => format!("tuple[{}]", joined(items, ", ")),
        PythonType::Dict { value, .. } => format!("dict[str, {}]", inner(value)),
        PythonType::Union(members) | PythonType::Tagged { members, .. } => joined(members, " | "),
        PythonType::Checked(checked, _) => inner(checked),
        PythonType::Class(id) => match &classes.get(*id).body {
            ClassBody::Enum(members) if is_shown_by_values(*id, classes) => {
                let values = members.iter().map(|member| literal::value(&member.value));
                values.collect::<Vec<_>>().join(" | ")
            }
            ClassBody::Root(ty) if depth < ROOTS_DEEP => brief_within(ty, classes, depth + 1),
            _ => classes.get(*id).name.clone(),
        },
    }
}

/// Whether an enum's values stand in the place of its name.
fn is_shown_by_values(id: ClassId, classes: &SchemaClasses) -> bool {
    let ClassBody::Enum(members) = &classes.get(id).body else { return false };
    let chars: usize = members.iter().map(|member| literal::value(&member.value).chars().count() + 3).sum();
    chars <= VALUES_CHARS
}

/// The first sentence of a text, on one line, cut between words if it is longer than `limit` characters.
pub(super) fn first_sentence(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for part in text.trim().lines().map(str::trim) {
        let is_other = part.is_empty() || part.starts_with(['-', '*', '#', '•', '|', '<', '`']);
        if is_other && !line.is_empty() {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
        if part.ends_with(['.', '!', '?', ':']) {
            break;
        }
    }
    // The full stop of an abbreviation is not the end.
    let end = line.match_indices(". ").map(|(at, _)| at + 1).find(|at| *at > 20).unwrap_or(line.len());
    let sentence = &line[..end];
    let Some((cut, _)) = sentence.char_indices().nth(limit) else { return sentence.to_owned() };
    let kept = &sentence[..cut];
    let kept = kept.rsplit_once(' ').map_or(kept, |(words, _)| words);
    // A remark in parentheses is left out rather than cut.
    let kept = match kept.rfind('(') {
        Some(at) if at > 0 && !kept[at..].contains(')') => &kept[..at],
        _ => kept,
    };
    format!("{}…", kept.trim_end().trim_end_matches([',', ';', ':', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let parameters = ["a: int", "b: str", "c: Any", "d: bool"].map(str::to_owned);
        for (limit, expected) in
            [(0, "a: int, …3 more"), (14, "a: int, b: str, …2 more"), (40, "a: int, b: str, c: Any, d: bool")]
        {
            assert_eq!(within(&parameters, limit), expected, "{limit}");
        }
    }

    #[test]
    fn a_first_sentence_is_not_cut_at_a_line_break() {
        for (text, expected) in [
            ("", ""),
            ("One line", "One line"),
            (
                "A sentence that goes on\nin the next line. And more.",
                "A sentence that goes on in the next line.",
            ),
            ("Lists files.\nReturns names.", "Lists files."),
            ("Does this, e.g. that. Then more.", "Does this, e.g. that."),
            ("Takes\n- a\n- b", "Takes"),
            ("\n\n  Indented\n\n  Args:", "Indented"),
        ] {
            assert_eq!(first_sentence(text, 100), expected, "{text}");
        }
        assert_eq!(first_sentence("One two, three", 9), "One two…");
        assert_eq!(first_sentence("A zone (e.g., 'America/New_York', 'Europe/London')", 40), "A zone…");
    }
}
