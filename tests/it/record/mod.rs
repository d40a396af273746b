//! Recordings of sessions, made with real servers and replayed without them.

mod applications;
mod judging;
mod playing;
mod recording;
mod replaying;
