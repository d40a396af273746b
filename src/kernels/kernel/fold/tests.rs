//! What becomes of sequences of messages.

use serde_json::{Value, json};

use super::*;
use crate::kernels::kernel::message::MimeBundle;

fn stream(text: &str) -> MessageContent {
    MessageContent::Shown(ShownOutput::Stream(text.to_owned()))
}

fn bundle(value: Value) -> MimeBundle {
    let Value::Object(bundle) = value else { panic!("a bundle is an object") };
    bundle
}

fn object(id: Option<&str>, value: Value) -> MessageContent {
    let id = id.map(str::to_owned);
    MessageContent::Shown(ShownOutput::Object { bundle: bundle(value), id, is_begun: false, is_value: false })
}

fn plain_object(text: &str) -> MessageContent {
    object(None, json!({"text/plain": text}))
}

fn update(id: &str, value: Value) -> MessageContent {
    MessageContent::Shown(ShownOutput::Update { bundle: bundle(value), id: Some(id.to_owned()) })
}

fn replied(error: Option<PythonError>) -> MessageContent {
    MessageContent::ExecuteReply { error, shown: None }
}

fn clear(is_delayed: bool) -> MessageContent {
    MessageContent::Shown(ShownOutput::Clear { is_delayed })
}

/// What is handed on, message by message, put together as its taker would.
#[derive(Debug, Default)]
struct Record {
    text: String,
    images: Vec<AttachmentId>,
    chunks: String,
    longest_settled: usize,
}

impl Record {
    fn settle(&mut self, settled: SettledText) {
        if settled.is_anew {
            self.text.clear();
        }
        self.longest_settled = self.longest_settled.max(settled.text.len());
        self.text += &settled.text;
    }
}

fn record(contents: impl IntoIterator<Item = MessageContent>) -> Record {
    let mut fold = CellFold::new("cell".to_owned());
    let mut record = Record::default();
    for content in contents {
        let taken = fold.take(content);
        record.chunks += &taken.chunk.unwrap_or_default();
        record.images.extend(taken.images.iter().map(|(id, _)| *id));
        record.images.retain(|id| !taken.discarded.contains(id));
        if let Some(settled) = taken.settled {
            record.settle(settled);
        }
    }
    record.settle(fold.finish().0);
    record
}

fn check(contents: impl IntoIterator<Item = MessageContent>, expected: &str) {
    assert_eq!(record(contents).text, expected);
}

#[test]
fn streams_are_merged_in_order() {
    check([stream("a\n"), stream("b"), stream("c\n")], "a\nbc\n");
}

#[test]
fn line_ends_of_terminals_become_newlines() {
    check([stream("a\r\nb\r"), stream("\nc\r"), stream("d\r"), plain_object("2")], "a\nb\nd\n2");
}

#[test]
fn progress_bars_collapse() {
    check([stream("\r 1%"), stream("\r 50%"), stream("\r100%\n"), stream("done\n")], "100%\ndone\n");
    check([stream("\u{1b}[31"), stream("mred\u{1b}[0m")], "red");
}

#[test]
fn shown_objects_stand_on_lines_of_their_own() {
    let two = || plain_object("2");
    check([two(), two()], "2\n2");
    check([stream("a"), two(), stream("b\n"), two()], "a\n2\nb\n2");
    check([stream("a\n"), two(), stream(""), stream("b")], "a\n2\nb");
    check([two(), object(None, json!({"image/png": "iVBORw=="})), stream("b")], "2\nb");
    check([plain_object("\u{1b}[1mbold\u{1b}[0m")], "bold");
}

#[test]
fn those_who_follow_along_see_the_same() {
    let contents = || [stream("a"), plain_object("2"), plain_object("3"), stream("b\n"), plain_object("4")];
    assert_eq!(record(contents()).chunks, record(contents()).text);
}

#[test]
fn an_update_changes_what_was_shown() {
    let show = |id: &str, text: &str| object(Some(id), json!({"text/plain": text}));
    let change = |id: &str, text: &str| update(id, json!({"text/plain": text}));
    check([show("a", "1"), stream("x"), change("a", "2"), change("a", "3")], "3\nx");
    check([show("a", "1"), show("b", "2"), change("b", "3")], "1\n3");
    // It was shown by an earlier cell.
    check([stream("x"), change("c", "4")], "x\n4");
}

#[test]
fn an_updated_image_takes_the_place_of_the_old_one() {
    let image = || json!({"image/png": "iVBORw=="});
    let record = record([object(Some("a"), image()), object(None, image()), update("a", image())]);
    assert_eq!(record.images.len(), 2);
}

#[test]
fn cleared_output_is_gone() {
    check([stream("a"), clear(false)], "");
    check([stream("a"), clear(false), stream("b")], "b");
    check([stream("a"), clear(true)], "a");
    check([stream("a"), clear(true), stream("b"), stream("c")], "bc");
    check([stream("a"), plain_object("1"), clear(true), plain_object("2")], "2");
    let image = || object(None, json!({"image/png": "iVBORw=="}));
    let frames = record((0..10).flat_map(|_| [clear(true), image()]));
    assert_eq!(frames.images.len(), 1);
}

#[test]
fn a_long_object_goes_on_as_a_stream() {
    let begun = |text: &str| {
        let bundle = bundle(json!({"text/plain": text}));
        MessageContent::Shown(ShownOutput::Object { bundle, id: None, is_begun: true, is_value: false })
    };
    check([stream("a"), begun("long "), stream("text\n"), stream("b")], "a\nlong text\nb");
    check([stream("a\n"), begun("long "), stream("text\n"), plain_object("2")], "a\nlong text\n2");
    check([plain_object("1"), begun("long "), stream("text\n")], "1\nlong text\n");
}

#[test]
fn much_output_is_handed_on_as_it_comes() {
    let lines = (0..200_000).map(|number| stream(&format!("line {number}\n")));
    let record = record(lines);
    let expected: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
    assert_eq!(record.text, expected);
    assert!(record.longest_settled < 3 * 1024 * 1024, "{}", record.longest_settled);
}

#[test]
fn what_was_handed_on_can_still_be_cleared() {
    let much = "x".repeat(3_000_000);
    let image = object(None, json!({"image/png": "iVBORw=="}));
    let record = record([image, stream(&much), stream(&much), clear(true), stream("b")]);
    assert_eq!(record.text, "b");
    assert_eq!(record.images, []);
}

#[test]
fn an_object_that_was_handed_on_is_updated_by_showing_it_again() {
    let much = "x".repeat(3_000_000);
    let text = json!({"text/plain": "1"});
    let change = || update("a", json!({"text/plain": "2"}));
    let record = record([object(Some("a"), text), stream(&much), stream("\n"), change(), change()]);
    assert_eq!(record.text, format!("1\n{much}\n2"));
}

#[test]
fn a_cell_ends_at_idle_and_reply_in_either_order() {
    let reply = || replied(None);
    for (first, second) in [(MessageContent::Idle, reply()), (reply(), MessageContent::Idle)] {
        let mut fold = CellFold::new("cell".to_owned());
        fold.take(first);
        assert!(!fold.is_complete());
        fold.take(stream("late"));
        fold.take(second);
        assert!(fold.is_complete());
        assert_eq!(fold.finish().0.text, "late");
    }
}

fn exception(name: &str) -> PythonError {
    PythonError { name: name.to_owned(), value: "v".to_owned(), traceback: Vec::new() }
}

/// The text of a cell, and what ended it.
fn ended(contents: impl IntoIterator<Item = MessageContent>) -> (String, Option<PythonError>) {
    let mut fold = CellFold::new("cell".to_owned());
    contents.into_iter().for_each(|content| drop(fold.take(content)));
    let (settled, error) = fold.finish();
    (settled.text, error)
}

#[test]
fn an_exception_ends_a_cell_by_its_message_or_by_the_reply() {
    let (one, other) = (|| exception("One"), || exception("Other"));
    let shown = || MessageContent::Error(one());
    assert_eq!(ended([stream("a"), shown(), replied(Some(one()))]), ("a".into(), Some(one())));
    assert_eq!(ended([replied(Some(one())), shown()]), (String::new(), Some(one())));
    // Exception groups are shown as a stream.
    assert_eq!(ended([stream("a"), replied(Some(one()))]), ("a".into(), Some(one())));
    // `%run`
    assert_eq!(ended([shown(), replied(None)]), (String::new(), Some(one())));
    // One that was handled, and shown all the same.
    assert_eq!(ended([shown(), stream("a"), replied(None)]), ("One: v\na".into(), None));
    let text = ended([shown(), MessageContent::Error(other()), replied(Some(other()))]);
    assert_eq!(text, ("One: v\n".into(), Some(other())));
}

#[test]
fn messages_that_the_kernel_has_sent_and_that_never_came_are_missed() {
    let missing = |contents: Vec<MessageContent>| {
        let mut fold = CellFold::new("cell".to_owned());
        contents.into_iter().for_each(|content| drop(fold.take(content)));
        fold.missing().map(|LostOutput { messages, limit }| (messages, limit))
    };
    let reply = |shown| MessageContent::ExecuteReply { error: None, shown: Some(shown) };
    assert_eq!(missing(vec![stream("a"), reply(1)]), None);
    assert_eq!(missing(vec![reply(2), stream("a"), plain_object("1")]), None);
    // Threads go on.
    assert_eq!(missing(vec![stream("a"), stream("b"), reply(1)]), None);
    assert_eq!(missing(vec![stream("a"), reply(3)]), Some((2, None)));
    let limit = RateLimit { setting: "iopub_data_rate_limit", rate: None };
    assert_eq!(missing(vec![MessageContent::Limited(limit), reply(1)]), Some((1, Some(limit))));
}

#[test]
fn only_its_own_messages_belong_to_a_cell() {
    let fold = CellFold::new("cell".to_owned());
    let of = |parent: Option<&str>| KernelMessage::new(parent.map(str::to_owned), MessageContent::Idle);
    assert!(fold.is_parent_of(&of(Some("cell"))));
    assert!(!fold.is_parent_of(&of(Some("other"))));
    assert!(!fold.is_parent_of(&of(None)));
}
