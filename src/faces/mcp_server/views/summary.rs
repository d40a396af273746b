//! A summary of each column of a table: pure.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::table::{ChosenRows, RowQuery, SortKey, exact, text};

/// The summary of a column as far as it was seen.
#[derive(Default)]
struct ColumnSummary {
    missing: usize,
    /// The hashes of its values.
    distinct: HashSet<u64>,
    least: Option<(SortKey, Value)>,
    greatest: Option<(SortKey, Value)>,
}

/// For each column of the rows that the filters let through: how many values are missing, how many distinct ones there are, the
/// least and the greatest of them.
///
/// # Errors
/// As for a page of the table.
pub(super) fn summary(table: &str, query: &RowQuery) -> Result<Value, String> {
    let chosen = ChosenRows::of(table, query)?;
    let mut columns: Vec<ColumnSummary> = (0..chosen.columns()).map(|_| ColumnSummary::default()).collect();
    for values in chosen.values() {
        let mut values = values?.into_iter();
        for column in &mut columns {
            column.add(values.next().unwrap_or_default());
        }
    }
    Ok(json!({ "summary": columns.into_iter().map(ColumnSummary::shown).collect::<Vec<_>>() }))
}

impl ColumnSummary {
    fn add(&mut self, value: Value) {
        if value.is_null() {
            self.missing += 1;
            return;
        }
        let mut hasher = DefaultHasher::new();
        text(&value).hash(&mut hasher);
        self.distinct.insert(hasher.finish());
        let key = || SortKey::of(Some(&value));
        if self.least.as_ref().is_none_or(|(least, _)| key().order(least, false).is_lt()) {
            self.least = Some((key(), value.clone()));
        }
        if self.greatest.as_ref().is_none_or(|(greatest, _)| key().order(greatest, false).is_gt()) {
            self.greatest = Some((key(), value));
        }
    }

    fn shown(self) -> Value {
        let [least, greatest] = [self.least, self.greatest].map(|end| end.map(|(_, value)| exact(value)));
        json!({ "missing": self.missing, "distinct": self.distinct.len(), "least": least, "greatest": greatest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_summed_up_over_the_rows_that_the_filters_let_through() {
        let table = r#"{"title":"T","rows":5,"columns":[{"name":"a","type":"str","index":false},{"name":"b","type":"int","index":false}],"left_out":0}
["x",10]
["y",9]
[null,9]
["x",-1]
["z",{"number":"1180591620717411303424"}]"#;
        let column = |missing: usize, distinct: usize, least: Value, greatest: Value| json!({"missing": missing, "distinct": distinct, "least": least, "greatest": greatest});
        let whole = summary(table, &RowQuery::default()).unwrap();
        let great = json!({"number": "1180591620717411303424"});
        assert_eq!(
            whole["summary"],
            json!([column(1, 3, json!("x"), json!("z")), column(0, 4, json!(-1), great)])
        );
        let query: RowQuery =
            serde_json::from_value(json!({"filters": [{"column": 1, "is": "=", "value": "9"}]})).unwrap();
        let some = summary(table, &query).unwrap();
        assert_eq!(
            some["summary"],
            json!([column(1, 1, json!("y"), json!("y")), column(0, 1, json!(9), json!(9))])
        );
        assert!(summary("", &RowQuery::default()).is_err());
    }
}
