//! Rows of a table, sorted and filtered: pure.
//!
//! `ipybox_viewing.py` writes tables, and code can write others in their place: a line about the table, and a line for each
//! row, an array of values. Rows are parsed one at a time, so that a table takes no more memory than its text.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The number of rows that are looked at.
const MOST_ROWS: usize = 50_000;
/// The most columns and filters. `ipybox_viewing.py` makes 500 columns at most.
const MOST_COLUMNS: usize = 1000;
const MOST_FILTERS: usize = 100;
/// The longest title and name, in characters.
const NAME_CHARS: usize = 2000;
/// The longest line, in bytes.
const LINE_BYTES: usize = 2 * 1024 * 1024;
/// The number of rows of an answer unless it is asked for fewer, and at most.
const ROWS: usize = 50;
const MOST_ROWS_AT_ONCE: usize = 1000;
/// The length of the rows of an answer, in bytes, except for the first.
const ANSWER_BYTES: usize = 512 * 1024;
/// The greatest whole number to which JavaScript has all smaller ones.
const EXACT: u64 = 1 << 53;

/// Which rows are wanted, and in which order.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Deserialize), serde(default))]
pub(super) struct RowQuery {
    /// The number of wanted rows.
    pub(super) rows: Option<usize>,
    pub(super) sort: Option<TableSort>,
    /// All of which let a row through.
    pub(super) filters: Vec<RowFilter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableSort {
    column: usize,
    #[serde(default)]
    descending: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowFilter {
    /// Any column if it is missing.
    column: Option<usize>,
    is: TableTest,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum TableTest {
    #[serde(rename = "containing")]
    Containing,
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    Unequal,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "empty")]
    Empty,
    #[serde(rename = "filled")]
    Filled,
}

/// The line about the table.
#[derive(Debug, Deserialize)]
struct TableHead {
    title: String,
    /// The number of rows of the table, of which the file may have the first.
    rows: u64,
    columns: Vec<Column>,
    /// The number of its further columns.
    left_out: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    index: bool,
}

/// A value by which rows are sorted: numbers, then texts in any case of letters, then what is missing.
#[derive(Debug)]
pub(super) enum SortKey {
    Number(TableNumber),
    Text(String),
    Missing,
}

/// A number, also one that JSON does not have.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableNumber {
    near: f64,
    /// Its whole part: if it is whole and has more than 53 bits, `near` is another number.
    whole: i128,
}

/// Rows of a table from this one on, of those that the filters let through.
///
/// # Errors
/// It is no table, or has no such column.
pub(super) fn page(text: &str, from: u64, query: &RowQuery) -> Result<Value, String> {
    let ChosenRows { head, lines, rows } = ChosenRows::of(text, query)?;
    let columns = head.columns.len();
    let first = usize::try_from(from).unwrap_or(usize::MAX).min(rows.len());
    let most = query.rows.unwrap_or(ROWS).clamp(1, MOST_ROWS_AT_ONCE);
    let mut shown = Vec::new();
    let mut left = ANSWER_BYTES;
    for &row in rows[first..].iter().take(most) {
        let Some(rest) = left.checked_sub(lines[row].len()).or(shown.is_empty().then_some(0)) else { break };
        left = rest;
        let values = parse(lines[row])?.into_iter().take(columns).map(exact);
        shown.push(json!({ "number": row + 1, "values": Vec::from_iter(values) }));
    }
    Ok(json!({
        "title": head.title,
        "columns": head.columns,
        "left_out": head.left_out,
        "rows": head.rows,
        "held": lines.len(),
        "matching": rows.len(),
        "from": first,
        "page": shown,
    }))
}

/// The rows of a table that the filters let through, in order.
pub(super) struct ChosenRows<'a> {
    head: TableHead,
    lines: Vec<&'a str>,
    /// Their numbers.
    rows: Vec<usize>,
}

impl<'a> ChosenRows<'a> {
    /// # Errors
    /// It is no table, or has no such column.
    pub(super) fn of(text: &'a str, query: &RowQuery) -> Result<Self, String> {
        let mut lines = text.lines();
        let head: TableHead = lines
            .next()
            .filter(|line| line.len() <= LINE_BYTES)
            .and_then(|line| serde_json::from_str(line).ok())
            .filter(TableHead::is_sound)
            .ok_or("the view is no table")?;
        if query.filters.len() > MOST_FILTERS {
            return Err(format!("there are more than {MOST_FILTERS} filters"));
        }
        let lines: Vec<&str> = lines.take(MOST_ROWS).collect();
        let columns = head.columns.len();
        let asked = query.filters.iter().filter_map(|filter| filter.column);
        if let Some(column) = asked.chain(query.sort.iter().map(|sort| sort.column)).find(|at| *at >= columns)
        {
            return Err(format!("the table has no column {column}: it has {columns}, counted from 0"));
        }
        let rows = chosen(&lines, query)?;
        Ok(Self { head, lines, rows })
    }

    /// The number of columns of the table.
    pub(super) fn columns(&self) -> usize {
        self.head.columns.len()
    }

    /// The values of each row.
    pub(super) fn values(&self) -> impl Iterator<Item = Result<Vec<Value>, String>> {
        self.rows.iter().map(|row| parse(self.lines[*row]))
    }
}

/// The numbers of the rows that the filters let through, in order.
fn chosen(lines: &[&str], query: &RowQuery) -> Result<Vec<usize>, String> {
    let RowQuery { sort, filters, .. } = query;
    if sort.is_none() && filters.is_empty() {
        return Ok((0..lines.len()).collect());
    }
    let mut keys = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let values = parse(line)?;
        if filters.iter().all(|filter| filter.lets_through(&values)) {
            let key = sort.as_ref().map_or(SortKey::Missing, |sort| SortKey::of(values.get(sort.column)));
            keys.push((key, number));
        }
    }
    let is_descending = sort.as_ref().is_some_and(|sort| sort.descending);
    keys.sort_by(|(one, _), (other, _)| one.order(other, is_descending));
    Ok(keys.into_iter().map(|(_, number)| number).collect())
}

fn parse(line: &str) -> Result<Vec<Value>, String> {
    if line.len() > LINE_BYTES {
        return Err(format!("a row of the table has more than {LINE_BYTES} bytes"));
    }
    serde_json::from_str(line).map_err(|error| format!("a row of the table is none: {error}"))
}

/// A value that JavaScript reads as it is. A number that it does not have is `{"number": text}`.
pub(super) fn exact(value: Value) -> Value {
    let is_exact = |value: &Value| match (value.as_i64(), value.as_u64()) {
        (Some(whole), _) => whole.unsigned_abs() <= EXACT,
        (None, whole) => whole.is_none(),
    };
    match value {
        Value::Number(_) if !is_exact(&value) => json!({ "number": value.to_string() }),
        Value::Object(_) if TableNumber::of(&value).is_some() => json!({ "number": text(&value) }),
        Value::Array(_) | Value::Object(_) => value.to_string().into(),
        value => value,
    }
}

impl TableHead {
    /// Whether it is short enough for a page.
    fn is_sound(&self) -> bool {
        let texts = self.columns.iter().flat_map(|column| [&column.name, &column.kind]).chain([&self.title]);
        self.columns.len() <= MOST_COLUMNS
            && texts.map(|text| text.chars().count()).all(|chars| chars <= NAME_CHARS)
    }
}

impl TableNumber {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => {
                let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
                Some(Self::new(number.as_f64()?, whole))
            }
            Value::Object(fields) if fields.len() == 1 => Self::read(fields.get("number")?.as_str()?),
            _ => None,
        }
    }

    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let near = text.parse::<f64>().ok().filter(|near| !near.is_nan())?;
        Some(Self::new(near, text.parse().ok()))
    }

    fn new(near: f64, whole: Option<i128>) -> Self {
        // Zero has no sign here.
        Self { near: near + 0.0, whole: whole.unwrap_or(near as i128) }
    }

    /// A total order: sorting may panic with another one.
    fn order(&self, other: &Self) -> Ordering {
        self.near.total_cmp(&other.near).then(self.whole.cmp(&other.whole))
    }
}

impl SortKey {
    pub(super) fn of(value: Option<&Value>) -> Self {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Self::Missing };
        match (value, TableNumber::of(value)) {
            (_, Some(number)) => Self::Number(number),
            (Value::Bool(truth), None) => Self::Number(TableNumber::new(f64::from(u8::from(*truth)), None)),
            (value, None) => Self::Text(text(value).to_lowercase()),
        }
    }

    /// The order of two values. Missing ones come last in both directions.
    pub(super) fn order(&self, other: &Self, is_descending: bool) -> Ordering {
        let rank = |key: &Self| match key {
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::Missing => 2,
        };
        let order = match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => return rank(self).cmp(&rank(other)),
            (Self::Number(one), Self::Number(other)) => one.order(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => rank(self).cmp(&rank(other)),
        };
        if is_descending { order.reverse() } else { order }
    }
}

impl RowFilter {
    fn lets_through(&self, values: &[Value]) -> bool {
        match self.column {
            Some(column) => self.fits(values.get(column).unwrap_or(&Value::Null)),
            None => values.iter().any(|value| self.fits(value)),
        }
    }

    fn fits(&self, value: &Value) -> bool {
        match self.is {
            TableTest::Empty => return value.is_null(),
            TableTest::Filled => return !value.is_null(),
            _ if value.is_null() => return false,
            TableTest::Containing => return text(value).to_lowercase().contains(&self.value.to_lowercase()),
            _ => {}
        }
        let Some(order) = self.compared_with(value) else { return self.is == TableTest::Unequal };
        match self.is {
            TableTest::Equal => order.is_eq(),
            TableTest::Unequal => order.is_ne(),
            TableTest::Less => order.is_lt(),
            TableTest::AtMost => order.is_le(),
            TableTest::Greater => order.is_gt(),
            TableTest::AtLeast => order.is_ge(),
            TableTest::Containing | TableTest::Empty | TableTest::Filled => false,
        }
    }

    /// Compares numbers with numbers, and texts in any case of letters; `None` if a number is compared with something else.
    fn compared_with(&self, value: &Value) -> Option<Ordering> {
        match TableNumber::of(value) {
            Some(number) => Some(number.order(&TableNumber::read(&self.value)?)),
            None => Some(text(value).to_lowercase().cmp(&self.value.to_lowercase())),
        }
    }
}

/// A value as the page shows it.
pub(super) fn text(value: &Value) -> String {
    let number = value
        .as_object()
        .filter(|_| TableNumber::of(value).is_some())
        .and_then(|fields| fields.get("number"));
    number.unwrap_or(value).as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"{"title":"T","rows":1000,"columns":[{"name":"name","type":"str","index":false},{"name":"size","type":"float64","index":false}],"left_out":0}
["b",2]
["A",10.5]
["c",null]
["a",-1]
[null,9007199254740993]"#;

    fn query(query: Value) -> RowQuery {
        serde_json::from_value(query).unwrap()
    }

    /// The numbers of the rows on a page.
    #[track_caller]
    fn check(asked: Value, expected: &[u64]) {
        let page = page(TABLE, 0, &query(asked.clone())).unwrap();
        let numbers = page["page"].as_array().unwrap().iter().map(|row| row["number"].as_u64().unwrap());
        assert_eq!(Vec::from_iter(numbers), expected, "{asked}");
    }

    #[test]
    fn rows_are_sorted() {
        check(json!({}), &[1, 2, 3, 4, 5]);
        check(json!({"sort": {"column": 0}}), &[2, 4, 1, 3, 5]);
        check(json!({"sort": {"column": 0, "descending": true}}), &[3, 1, 2, 4, 5]);
        check(json!({"sort": {"column": 1}}), &[4, 1, 2, 5, 3]);
        check(json!({"sort": {"column": 1, "descending": true}}), &[5, 2, 1, 4, 3]);
    }

    #[test]
    fn rows_are_filtered() {
        let filter = |column: Option<usize>, is: &str, value: &str| json!({"filters": [{"column": column, "is": is, "value": value}]});
        check(filter(Some(0), "containing", "A"), &[2, 4]);
        check(filter(None, "containing", "1"), &[2, 4, 5]);
        check(filter(Some(0), "=", "a"), &[2, 4]);
        check(filter(Some(1), "=", "2"), &[1]);
        check(filter(Some(1), "!=", "2"), &[2, 4, 5]);
        check(filter(Some(1), "<", "2.5"), &[1, 4]);
        check(filter(Some(1), "<=", "2"), &[1, 4]);
        check(filter(Some(1), ">", " 2 "), &[2, 5]);
        check(filter(Some(1), ">=", "2"), &[1, 2, 5]);
        check(filter(Some(1), "empty", ""), &[3]);
        check(filter(Some(0), "filled", ""), &[1, 2, 3, 4]);
        check(
            json!({"filters": [{"is": "filled", "column": 1}, {"is": ">", "column": 1, "value": "0"}], "sort": {"column": 1}}),
            &[1, 2, 5],
        );
    }

    #[test]
    fn numbers_are_compared_as_such_however_they_are_written() {
        let head = TABLE.lines().next().unwrap();
        let rows = [
            "9007199254740993",
            r#"{"number":"9.50"}"#,
            r#"{"number":"-inf"}"#,
            "-0.0",
            r#"{"number":"10.25"}"#,
            r#"{"number":"inf"}"#,
            "9007199254740992",
            r#"{"number":"1180591620717411303424"}"#,
            r#""text""#,
            r#"{"number":"nan"}"#,
        ];
        let table = format!("{head}\n{}", rows.map(|value| format!("[null,{value}]")).join("\n"));
        let numbers = |asked: Value| {
            let page = page(&table, 0, &query(asked)).unwrap();
            let rows = page["page"].as_array().unwrap();
            Vec::from_iter(rows.iter().map(|row| row["number"].as_u64().unwrap()))
        };
        assert_eq!(numbers(json!({"sort": {"column": 1}})), [3, 4, 2, 5, 7, 1, 8, 6, 9, 10]);
        let filter =
            |is: &str, value: &str| numbers(json!({"filters": [{"column": 1, "is": is, "value": value}]}));
        assert_eq!(filter("=", "0"), [4]);
        assert_eq!(filter("=", "9007199254740993"), [1]);
        assert_eq!(filter("=", "9.5"), [2]);
        assert_eq!(filter("<", "9.6"), [2, 3, 4]);
        assert_eq!(filter("<=", "10.25"), [2, 3, 4, 5]);
        assert_eq!(filter("containing", "9.50"), [2]);
        // A number is neither less nor more than what is none.
        assert_eq!((filter("<", "1,000"), filter(">=", "1,000")), (vec![], vec![9, 10]));
        assert_eq!(filter("!=", "x").len(), rows.len());
        let shown = page(&table, 0, &RowQuery::default()).unwrap()["page"][1]["values"][1].clone();
        assert_eq!(shown, json!({"number": "9.50"}));
    }

    #[test]
    fn the_order_of_numbers_is_total() {
        let numbers =
            ["9007199254740993", "9007199254740992.0", "9007199254740992", "1e400", "1e39", "-1e39"];
        let limits = [i128::MAX, i128::MIN].map(|limit| limit.to_string());
        let numbers = numbers.into_iter().chain(limits.iter().map(String::as_str));
        let mut sorted: Vec<TableNumber> = numbers.map(|text| TableNumber::read(text).unwrap()).collect();
        sorted.sort_by(TableNumber::order);
        for (at, one) in sorted.iter().enumerate() {
            assert!(sorted[at..].iter().all(|later| one.order(later).is_le()), "{one:?} in {sorted:?}");
            let equal = |other: &&TableNumber| one.order(other).is_eq();
            assert!(sorted.iter().filter(equal).all(|equal| equal.whole == one.whole), "{one:?}");
        }
    }

    #[test]
    fn pages_make_the_whole() {
        let page_from = |from| page(TABLE, from, &query(json!({"rows": 2}))).unwrap();
        let lengths = [0, 2, 4, 5, u64::MAX].map(|from| page_from(from)["page"].as_array().unwrap().len());
        assert_eq!(lengths, [2, 2, 1, 0, 0]);
        let page = page_from(4);
        assert_eq!((&page["rows"], &page["held"], &page["matching"]), (&json!(1000), &json!(5), &json!(5)));
        // JavaScript does not have the number.
        assert_eq!(page["page"][0]["values"], json!([null, {"number": "9007199254740993"}]));
    }

    #[test]
    fn long_rows_make_short_pages() {
        let head = TABLE.lines().next().unwrap();
        let row = json!(["x".repeat(ANSWER_BYTES / 3), 1]).to_string();
        let table = format!("{head}\n{}", [row.as_str(); 10].join("\n"));
        assert_eq!(page(&table, 0, &RowQuery::default()).unwrap()["page"].as_array().unwrap().len(), 2);
        let row = json!(["x".repeat(ANSWER_BYTES * 2), 1]).to_string();
        let table = format!("{head}\n{row}\n{row}");
        assert_eq!(page(&table, 0, &RowQuery::default()).unwrap()["page"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let column = r#"{"name":"","type":"","index":false},"#;
        for (text, expected) in [
            ("", "no table"),
            ("[]", "no table"),
            (&TABLE.replace(r#""title":"T","#, ""), "no table"),
            (
                &TABLE.replace("name\":\"name", &format!("name\":\"{}", "x".repeat(NAME_CHARS + 1))),
                "no table",
            ),
            (&TABLE.replace(r#""columns":["#, &format!("\"columns\":[{}", column.repeat(1000))), "no table"),
            (&format!("{TABLE}\n{{}}"), "is none"),
            (&format!("{TABLE}\n{}", "[".repeat(1000)), "is none"),
            (&format!("{TABLE}\n[\"{}\"]", "x".repeat(LINE_BYTES)), "more than"),
        ] {
            let error = page(text, 0, &query(json!({"sort": {"column": 0}}))).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = page(TABLE, 0, &query(json!({"sort": {"column": 2}}))).unwrap_err();
        assert_eq!(error, "the table has no column 2: it has 2, counted from 0");
        let many = query(json!({"filters": vec![json!({"is": "empty"}); MOST_FILTERS + 1]}));
        assert_eq!(page(TABLE, 0, &many).unwrap_err(), "there are more than 100 filters");
        // What a row has beyond its columns is not shown.
        let table = format!("{}\n[1,2,3]", TABLE.lines().next().unwrap());
        assert_eq!(page(&table, 0, &RowQuery::default()).unwrap()["page"][0]["values"], json!([1, 2]));
    }
}
