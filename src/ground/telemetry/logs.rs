//! The audit log as log records.

use std::time::SystemTime;

use chrono::DateTime;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use parking_lot::RwLock;
use serde::Deserialize;

/// The logger of this program, if logs are exported.
static LOGGER: RwLock<Option<SdkLogger>> = RwLock::new(None);
/// The name of all records; the line has that of its event.
const EVENT_NAME: &str = "ipybox.audit";

/// The fields of a line that a record has too.
#[derive(Deserialize)]
struct ExportedLine {
    time: String,
    session: String,
    event: String,
}

/// From now on lines go to this provider, or to none.
pub(super) fn turn(provider: Option<&SdkLoggerProvider>) {
    *LOGGER.write() = provider.map(|provider| provider.logger(env!("CARGO_PKG_NAME")));
}

/// Exports a line, with its newline or without. It waits for nobody: if too many wait, it is lost.
pub(super) fn export(line: &[u8]) {
    let logger = LOGGER.read();
    let Some(logger) = &*logger else { return };
    let Ok(text) = std::str::from_utf8(line.trim_ascii_end()) else { return };
    let Ok(fields) = serde_json::from_str::<ExportedLine>(text) else { return };
    let mut record = logger.create_log_record();
    record.set_event_name(EVENT_NAME);
    let now = SystemTime::now();
    record.set_timestamp(DateTime::parse_from_rfc3339(&fields.time).map_or(now, SystemTime::from));
    record.set_observed_timestamp(now);
    record.set_severity_number(Severity::Info);
    record.set_severity_text("INFO");
    record.set_body(AnyValue::from(text.to_owned()));
    record.add_attribute("session.id", fields.session);
    record.add_attribute("ipybox.audit.event", fields.event);
    logger.emit(record);
}
