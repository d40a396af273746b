use super::*;

/// A session whose clock is set by hand.
struct Play {
    state: Deliveries,
    now: Instant,
    must_cancel: bool,
    has_progress: bool,
    is_recall: bool,
}

fn call(id: i64) -> CallId {
    CallId { connection: 1, id: RequestId::Number(id) }
}

impl Play {
    fn new() -> Self {
        let (state, now) = (Deliveries::default(), Instant::now());
        Self { state, now, must_cancel: false, has_progress: false, is_recall: false }
    }

    fn begin(&mut self, id: i64) {
        self.begin_in("main", id);
    }

    fn begin_in(&mut self, session: &str, id: i64) {
        let under_way = UnderWay {
            arrival: CallArrival { number: id as u64, at: self.now },
            queue: SessionQueue::of_session(Some(session)),
            cancelled: CancellationToken::new(),
            must_cancel: self.must_cancel,
            has_progress: self.has_progress,
            is_overtaken: false,
        };
        self.state.begin(call(id), under_way);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// Sends the answer with this number; returns the earlier ones that it repeats.
    fn answer(&mut self, id: i64, is_cancelled: bool) -> Vec<String> {
        let request = call(id);
        if is_cancelled {
            self.state.under_way[&request].cancelled.cancel();
        }
        let (why, after) = self.state.judge(&request, self.now);
        self.send(why, id, after)
    }

    fn send(&mut self, why: UndeliveredReason, id: i64, after: Duration) -> Vec<String> {
        let own = RepeatedAnswer::new(&format!("`tool {id}`"), &format!("answer {id}"), why, after);
        let (id, at, is_recall) = (call(id), self.now, self.is_recall);
        self.state.send(why, SentAnswer { id, at, own, carried: Vec::new(), is_recall })
    }

    /// Begins a call that takes `seconds` and is answered, without another one meanwhile.
    fn run(&mut self, id: i64, seconds: u64) -> Vec<String> {
        self.begin(id);
        self.wait(seconds);
        self.answer(id, false)
    }

    /// Sends the answer with this number; it names those in one line each.
    #[track_caller]
    fn names(&mut self, id: i64, expected: &[i64]) {
        let named = self.answer(id, false);
        assert_eq!(named.len(), expected.len(), "{named:?}");
        for (named, number) in named.iter().zip(expected) {
            let is_line = named.contains("may not have reached you") && named.lines().count() == 1;
            assert!(is_line && named.contains(&format!("`tool {number}`; it succeeded")), "{named}");
        }
    }

    #[track_caller]
    fn repeats(&mut self, id: i64, expected: &[i64]) {
        let repeated = self.answer(id, false);
        assert_eq!(repeated.len(), expected.len(), "{repeated:?}");
        for (repeated, number) in repeated.iter().zip(expected) {
            assert!(repeated.contains(&format!("answer {number}\n")), "{repeated}");
        }
    }
}

#[test]
fn a_cancelled_answer_is_repeated_once() {
    let mut play = Play::new();
    play.begin(1);
    assert!(play.answer(1, true).is_empty());
    for (id, expected) in [(2, &[1][..]), (3, &[])] {
        play.begin(id);
        play.repeats(id, expected);
    }
}

#[test]
fn the_next_answer_repeats_cancelled_ones() {
    let mut play = Play::new();
    for id in [1, 2] {
        play.begin(id);
        play.answer(id, true);
    }
    play.begin(3);
    play.repeats(3, &[1, 2]);
}

#[test]
fn calls_made_at_once_are_not_in_doubt() {
    let mut play = Play::new();
    play.begin(1);
    play.begin(2);
    play.wait(30);
    play.repeats(1, &[]);
    play.repeats(2, &[]);
    play.begin(3);
    play.repeats(3, &[]);
}

#[test]
fn a_call_that_another_one_overtakes_is_in_doubt() {
    let mut play = Play::new();
    play.begin(1);
    play.wait(2);
    play.begin(2);
    play.repeats(1, &[]);
    play.repeats(2, &[1]);
}

#[test]
fn cells_of_other_sessions_neither_overtake_nor_hold_up() {
    let mut play = Play::new();
    play.begin_in("077159", 1);
    play.wait(2);
    play.begin(2);
    assert!(!play.state.has_to_wait(&call(2)));
    play.repeats(2, &[]);
    play.begin(3);
    play.state.under_way[&call(1)].cancelled.cancel();
    assert!(!play.state.has_to_wait(&call(3)));
    play.answer(1, true);
    play.repeats(3, &[1]);
}

#[test]
fn a_call_that_takes_long_is_named_once() {
    let mut play = Play::new();
    play.run(1, 61);
    for (id, expected) in [(2, &[1][..]), (3, &[])] {
        // The time of a model, or of a client that has given up.
        play.wait(3);
        play.begin(id);
        play.names(id, expected);
    }
}

#[test]
fn a_call_that_takes_long_after_another_one_names_that_alone() {
    let mut play = Play::new();
    for id in 1..=4 {
        let named = play.run(id, 61);
        play.wait(3);
        assert_eq!(named.len(), usize::from(id > 1), "{named:?}");
    }
    play.begin(5);
    play.names(5, &[4]);
    play.is_recall = true;
    play.begin(6);
    play.repeats(6, &[1, 2, 3, 4, 5]);
}

#[test]
fn a_recall_repeats_what_a_line_would_only_name() {
    let mut play = Play::new();
    play.run(1, 61);
    play.wait(3);
    play.begin(2);
    play.is_recall = true;
    play.repeats(2, &[1]);
}

#[test]
fn an_overtaken_answer_is_repeated_once_more_after_one_in_doubt() {
    let mut play = Play::new();
    play.begin(1);
    for id in 2..=4 {
        play.wait(2);
        play.begin(id);
    }
    play.repeats(1, &[]);
    play.repeats(2, &[1]);
    play.repeats(3, &[1, 2]);
    play.repeats(4, &[2, 3]);
}

#[test]
fn a_request_at_once_shows_that_an_answer_has_arrived() {
    for (after, expected) in [(20, &[][..]), (300, &[1])] {
        let mut play = Play::new();
        play.run(1, 61);
        play.now += Duration::from_millis(after);
        play.begin(2);
        play.names(2, expected);
        play.is_recall = true;
        play.begin(3);
        play.repeats(3, &[1, 2]);
    }
}

#[test]
fn a_request_of_another_client_shows_nothing() {
    let mut play = Play::new();
    play.run(1, 61);
    play.state.settle_doubts(2, play.now);
    play.wait(3);
    play.begin(2);
    play.names(2, &[1]);
}

#[test]
fn who_gets_progress_waits_longer() {
    let mut play = Play::new();
    play.has_progress = true;
    play.run(1, 3_600);
    play.begin(2);
    play.repeats(2, &[]);
    // Another call may still mean that it has given up.
    play.begin(3);
    play.wait(2);
    play.begin(4);
    play.repeats(3, &[]);
    play.names(4, &[3]);
}

#[test]
fn who_has_waited_before_a_cancellation_waits_as_long_again() {
    let mut play = Play::new();
    play.begin(1);
    play.wait(100);
    play.state.cancelled(&call(1), play.now);
    play.answer(1, true);
    play.begin(2);
    play.repeats(2, &[1]);
    play.begin(3);
    play.wait(99);
    play.begin(4);
    play.repeats(3, &[]);
    play.repeats(4, &[]);
    play.run(5, 101);
    play.wait(3);
    play.begin(6);
    play.names(6, &[5]);
}

#[test]
fn a_cancellation_that_crosses_an_answer_in_doubt_has_it_repeated() {
    let mut play = Play::new();
    play.run(1, 61);
    play.state.cancelled(&call(1), play.now);
    play.begin(2);
    play.repeats(2, &[1]);
}

#[test]
fn who_has_to_cancel_waits_else() {
    let mut play = Play::new();
    play.must_cancel = true;
    play.begin(1);
    play.wait(61);
    play.begin(2);
    play.repeats(1, &[]);
    play.repeats(2, &[]);
    play.begin(3);
    play.answer(3, true);
    play.begin(4);
    play.repeats(4, &[3]);
}

#[test]
fn a_cancellation_that_crosses_its_answer_counts() {
    let mut play = Play::new();
    play.begin(1);
    play.answer(1, true);
    play.begin(2);
    play.repeats(2, &[1]);
    play.state.take_back(&call(2));
    play.state.take_back(&call(2));
    play.begin(3);
    play.repeats(3, &[1, 2]);
}

#[test]
fn nothing_is_lost_however_often_the_way_to_the_client_breaks() {
    let mut play = Play::new();
    for id in 1..=6 {
        play.begin(id);
        play.now += Duration::from_millis(1);
        let expected: Vec<i64> = (1..id).collect();
        play.repeats(id, &expected);
        play.state.disconnected(1, false, play.now);
    }
    // A client that has had time to read them is told twice.
    for (id, expected) in [(7, &[1, 2, 3, 4, 5, 6][..]), (8, &[1, 2, 3, 4, 5, 6, 7]), (9, &[7, 8])] {
        play.begin(id);
        play.now += Duration::from_millis(1);
        play.repeats(id, expected);
        play.wait(2);
        play.state.disconnected(1, false, play.now);
    }
}

#[test]
fn an_answer_waits_for_earlier_cells_whose_answers_it_should_repeat() {
    let mut play = Play::new();
    let has_to_wait = |play: &Play, id| play.state.has_to_wait(&call(id));
    play.begin(1);
    play.begin(2);
    assert!(!has_to_wait(&play, 2));
    play.state.under_way[&call(1)].cancelled.cancel();
    assert!(has_to_wait(&play, 2) && !has_to_wait(&play, 1));
    play.answer(1, true);
    assert!(!has_to_wait(&play, 2));
    play.repeats(2, &[1]);
}

#[test]
fn a_cancellation_after_the_judgement_counts() {
    let mut play = Play::new();
    play.begin(1);
    let request = call(1);
    let (why, after) = play.state.judge(&request, play.now);
    play.state.under_way[&request].cancelled.cancel();
    assert!(play.send(why, 1, after).is_empty());
    play.begin(2);
    play.repeats(2, &[1]);
}

#[test]
fn a_model_gets_the_last_answers_again_when_it_asks() {
    let mut play = Play::new();
    for id in 1..=6 {
        play.begin(id);
        play.repeats(id, &[]);
    }
    for id in [7, 8] {
        play.begin(id);
        play.is_recall = true;
        play.repeats(id, if id == 7 { &[3, 4, 5, 6] } else { &[4, 5, 6] });
    }
    play.is_recall = false;
    play.begin(9);
    play.repeats(9, &[]);
}

#[test]
fn memory_stays_bounded() {
    let mut play = Play::new();
    for id in 0..100 {
        play.begin(id);
        play.answer(id, id % 2 == 0);
        assert!(play.state.kept.len() <= KEPT && play.state.sent.len() <= REMEMBERED);
    }
    assert!(play.state.under_way.is_empty());
    for id in 100..200 {
        play.begin(id);
        play.answer(id, true);
    }
    play.begin(200);
    play.repeats(200, &[192, 193, 194, 195, 196, 197, 198, 199]);
}
