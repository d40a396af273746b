//! The variables of a URI template (RFC 6570). `ipybox_templates.py` expands it.

/// The operators that RFC 6570 gives a meaning.
const OPERATORS: &str = "+#./;?&";
/// Those after which a missing variable leaves a URI that is complete all the same.
const OPTIONAL: &str = "#;?&";
/// The most digits of the length of a prefix.
const PREFIX_DIGITS: usize = 4;

/// The longest template that becomes a function, in bytes: its text is in the module several times.
const TEMPLATE_BYTES: usize = 4 * 1024;

/// A variable of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateVariable {
    pub(super) name: String,
    /// Whether a list or a mapping comes apart (`*`).
    pub(super) is_exploded: bool,
    pub(super) is_required: bool,
}

/// The variables of `template` in the order of their first occurrence; an error says what is wrong with it.
pub(super) fn variables(template: &str) -> Result<Vec<TemplateVariable>, &'static str> {
    if template.len() > TEMPLATE_BYTES {
        return Err("it is longer than 4096 bytes");
    }
    let mut variables: Vec<TemplateVariable> = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let after = rest[at..].strip_prefix('{').ok_or("a `}` has no `{`")?;
        let (expression, behind) = after.split_once('}').ok_or("a `{` has no `}`")?;
        rest = behind;
        let operator = expression.chars().next().filter(|first| OPERATORS.contains(*first));
        let is_required = operator.is_none_or(|operator| !OPTIONAL.contains(operator));
        for specification in expression[operator.map_or(0, char::len_utf8)..].split(',') {
            let (name, is_exploded) = name(specification)?;
            match variables.iter_mut().find(|variable| variable.name == name) {
                Some(known) => {
                    known.is_required |= is_required;
                    known.is_exploded |= is_exploded;
                }
                None => variables.push(TemplateVariable { name: name.to_owned(), is_exploded, is_required }),
            }
        }
    }
    Ok(variables)
}

/// The name in `specification`, and whether it is exploded.
fn name(specification: &str) -> Result<(&str, bool), &'static str> {
    let (name, is_exploded) = match (specification.strip_suffix('*'), specification.split_once(':')) {
        (Some(name), _) => (name, true),
        (None, Some((name, length))) => {
            let is_length = (1..=PREFIX_DIGITS).contains(&length.len())
                && length.bytes().all(|byte| byte.is_ascii_digit())
                && !length.starts_with('0');
            if !is_length {
                return Err("a prefix is no number from 1 to 9999");
            }
            (name, false)
        }
        (None, None) => (specification, false),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '%');
    if !name.is_empty() && name.chars().all(is_name) {
        Ok((name, is_exploded))
    } else {
        Err("a variable has no valid name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let written = |TemplateVariable { name, is_exploded, is_required }: TemplateVariable| {
            format!("{name}{}{}", if is_exploded { "*" } else { "" }, if is_required { "" } else { "?" })
        };
        let variables = variables(template).map(|all| all.into_iter().map(written).collect::<Vec<_>>());
        assert_eq!(variables.map_or_else(str::to_owned, |all| all.join(" ")), expected, "{template}");
    }

    #[test]
    fn variables_are_optional_where_the_operator_makes_them_so() {
        check("", "");
        check("file:///a", "");
        check("db://{table}/{row:3}", "table row");
        check("{+base}/x{.ext}{/path*}", "base ext path*");
        check("s://x{?q,page}{&tags*}{#part}{;v}", "q? page? tags*? part? v?");
        check("s://{q}{?q}", "q");
        check("s://{user-id}{a.b}", "user-id a.b");
    }

    #[test]
    fn a_text_that_is_no_template_is_refused() {
        for template in [
            "{",
            "}",
            "{a",
            "a}b",
            "{}",
            "{?}",
            "{a,}",
            "{=a}",
            "{a b}",
            "{a:}",
            "{a:0}",
            "{a:99999}",
            "{a:+1}",
            "{a:2*}",
            "{\"}",
            "{{a}}",
            "{é}",
        ] {
            assert!(variables(template).is_err(), "{template}");
        }
        assert!(variables(&"x".repeat(TEMPLATE_BYTES + 1)).is_err());
    }
}
