//! Recordings of sessions, made with real servers and replayed without them.

mod applications;
mod conditions;
mod judging;
mod notebooks;
mod playing;
mod recording;
mod replaying;
