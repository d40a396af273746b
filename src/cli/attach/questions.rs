//! The questions that wait for the person, one by one or several at once.

use std::collections::{BTreeMap, VecDeque};

/// The questions that wait, the one that is asked, and those that this prompt has answered.
#[derive(Default)]
pub(super) struct AttachQuestions {
    waiting: VecDeque<AttachQuestion>,
    tables: Vec<QuestionTable>,
    /// The open ones of those that the person is asked now.
    asking: Vec<u64>,
    /// Those that this prompt has answered, and that are not decided yet.
    answered: Vec<u64>,
    /// The decisions about those that it has answered at once, and their numbers.
    decided: BTreeMap<String, usize>,
}

/// A question for the person.
#[derive(Clone)]
pub(super) struct AttachQuestion {
    pub(super) number: u64,
    pub(super) text: String,
    /// The answer that gives the grant which the text proposes, in words.
    pub(super) grant: Option<String>,
    /// Whether the answer can label the data of the server that is registered.
    pub(super) takes_label: bool,
}

/// Questions that can be asked together.
#[derive(Clone)]
pub(super) struct QuestionTable {
    pub(super) text: String,
    /// Their numbers, in the order of the rows.
    pub(super) rows: Vec<u64>,
    /// Those that have not come yet.
    missing: Vec<u64>,
}

/// The question that the person is asked.
pub(super) enum AttachAsked {
    One(AttachQuestion),
    Several(QuestionTable),
}

/// Whose question was decided.
pub(super) enum DecidedFor {
    /// One that this prompt has answered: how they were decided, once all of them are.
    Own(Option<String>),
    /// Another one.
    Other,
}

impl AttachQuestions {
    /// Notes that the questions with these numbers, which come next, can be asked together.
    pub(super) fn announce(&mut self, numbers: Vec<u64>, text: String) {
        self.tables.push(QuestionTable { text, missing: numbers.clone(), rows: numbers });
    }

    pub(super) fn add(&mut self, question: AttachQuestion) {
        for table in &mut self.tables {
            table.missing.retain(|number| *number != question.number);
        }
        self.waiting.push_back(question);
    }

    /// Whether something can be asked now.
    pub(super) fn is_due(&self) -> bool {
        self.waiting
            .front()
            .is_some_and(|first| self.table_of(first).is_none_or(|table| table.missing.is_empty()))
    }

    /// The next to be asked.
    pub(super) fn next(&mut self) -> Option<AttachAsked> {
        if !self.is_due() {
            return None;
        }
        let table = self.table_of(self.waiting.front()?).cloned();
        if let Some(table) = table {
            self.tables.retain(|other| other.rows != table.rows);
            let is_open = |number: &u64| self.waiting.iter().any(|question| question.number == *number);
            let open: Vec<u64> = table.rows.iter().copied().filter(is_open).collect();
            if open.len() > 1 {
                self.asking = open;
                return Some(AttachAsked::Several(table));
            }
        }
        let question = self.waiting.pop_front()?;
        self.asking = vec![question.number];
        Some(AttachAsked::One(question))
    }

    fn table_of(&self, question: &AttachQuestion) -> Option<&QuestionTable> {
        self.tables.iter().find(|table| table.rows.contains(&question.number))
    }

    /// Whether some of what the person is asked is still open.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Whether the person is asked nothing, but could be.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_asking() && self.is_due()
    }

    /// The person has answered. Returns what is still open of that.
    pub(super) fn answer(&mut self) -> Vec<u64> {
        let answered = std::mem::take(&mut self.asking);
        self.waiting.retain(|question| !answered.contains(&question.number));
        self.answered.extend(&answered);
        answered
    }

    /// Asks one by one what was to be asked together.
    pub(super) fn ask_each(&mut self) {
        self.asking.clear();
    }

    /// A question is decided.
    pub(super) fn decide(&mut self, number: u64, how: &str) -> DecidedFor {
        let is_other = |other: &u64| *other != number;
        for table in &mut self.tables {
            table.missing.retain(is_other);
        }
        if self.answered.contains(&number) {
            self.answered.retain(is_other);
            *self.decided.entry(how.to_owned()).or_default() += 1;
            return DecidedFor::Own(self.answered.is_empty().then(|| {
                let decided = std::mem::take(&mut self.decided);
                let only_one = decided.values().sum::<usize>() == 1;
                let words = decided
                    .into_iter()
                    .map(|(how, count)| if only_one { how } else { format!("{count} {how}") });
                words.collect::<Vec<_>>().join(", ")
            }));
        }
        self.waiting.retain(|question| question.number != number);
        self.asking.retain(is_other);
        DecidedFor::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u64) -> AttachQuestion {
        AttachQuestion { number, text: number.to_string(), grant: None, takes_label: false }
    }

    fn asked(questions: &mut AttachQuestions) -> String {
        match questions.next() {
            Some(AttachAsked::One(question)) => question.text,
            Some(AttachAsked::Several(table)) => table.text,
            None => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_table_is_asked_once_all_of_it_is_there() {
        let mut questions = AttachQuestions::default();
        questions.add(question(1));
        questions.announce(vec![2, 3, 4], "2 to 4".to_owned());
        questions.add(question(2));
        questions.add(question(3));
        assert_eq!(asked(&mut questions), "1");
        assert_eq!(questions.answer(), [1]);
        assert!(matches!(questions.decide(1, "denied"), DecidedFor::Own(Some(how)) if how == "denied"));
        assert!(!questions.is_due());
        questions.add(question(4));
        assert!(questions.is_waiting());
        assert_eq!(asked(&mut questions), "2 to 4");
        // Somebody else answers one, and this prompt the others.
        assert!(matches!(questions.decide(3, "denied"), DecidedFor::Other));
        assert!(questions.is_asking());
        assert_eq!(questions.answer(), [2, 4]);
        assert!(matches!(questions.decide(2, "allowed once"), DecidedFor::Own(None)));
        assert!(
            matches!(questions.decide(4, "allowed once"), DecidedFor::Own(Some(how)) if how == "2 allowed once")
        );
        assert_eq!(asked(&mut questions), "nothing");
    }

    #[test]
    fn a_table_can_be_asked_one_by_one_and_of_what_is_left() {
        let mut questions = AttachQuestions::default();
        questions.announce(vec![1, 2], "1 and 2".to_owned());
        questions.add(question(1));
        questions.add(question(2));
        assert_eq!(asked(&mut questions), "1 and 2");
        questions.ask_each();
        assert_eq!(asked(&mut questions), "1");
        questions.answer();
        assert_eq!(asked(&mut questions), "2");
        questions.announce(vec![3, 4], "3 and 4".to_owned());
        questions.add(question(3));
        // Decided before it came.
        questions.decide(4, "denied");
        questions.answer();
        assert_eq!(asked(&mut questions), "3");
    }
}
