//! Spans and metrics, by the conventions of OpenTelemetry for MCP.
//!
//! ```text
//! operation  a request of MCP: one that a client makes, or one of ours to a server ┐
//! cell       a cell in the kernel                                                  ├→ live → OpenTelemetry's API
//! decision   a call that was asked about, or denied                                ┘
//! exports    settings (`OTEL_*`) → providers → sender → a collector
//! logs       lines of the audit log → a provider of the program's own, since the API has none for all
//! ```
//!
//! Only this room knows the crates of OpenTelemetry. Others hold its types, which do nothing without the feature `otel`, and in
//! a program that was not asked to export. Spans go to the global provider: the one of the program `ipybox`, or that of the
//! application whose library this is. The context is the current one of OpenTelemetry, which follows the work of a request;
//! calls of code get that of the cell that runs, since code could name any.
//!
//! Reasons: `docs/decisions/telemetry.md`.

mod cell;
mod decision;
#[cfg(feature = "otel")]
mod exports;
#[cfg(feature = "otel")]
mod live;
#[cfg(feature = "otel")]
mod logs;
mod names;
#[cfg(not(feature = "otel"))]
mod none;
mod operation;
#[cfg(feature = "otel")]
mod propagation;
#[cfg(feature = "otel")]
mod sender;
#[cfg(feature = "otel")]
mod settings;
mod value;

pub(crate) use self::cell::CellSpan;
pub(crate) use self::decision::{DecisionSpan, MadeDecision};
#[cfg(feature = "otel")]
use self::live as api;
#[cfg(not(feature = "otel"))]
use self::none as api;
#[cfg(not(feature = "otel"))]
use self::none as logs;
pub(crate) use self::operation::{Operation, RequestLink, RequestTarget, TracedConnection};
pub(crate) use api::Context;

/// The bytes of arguments or of a result in a span, if contents are asked for: as many spans as wait to be sent take
/// 32 MiB.
const CONTENT_BYTES: usize = 8 * 1024;

/// Exports a line of the audit log, if that is wanted.
pub(crate) fn audited(line: &[u8]) {
    logs::export(line);
}

/// Runs the program's work, and exports what the variables `OTEL_*` ask for meanwhile. Call it in a runtime.
pub async fn exporting<T>(work: impl Future<Output = T>) -> T {
    let work = Box::pin(work);
    #[cfg(feature = "otel")]
    {
        let exports = exports::TelemetryExports::start();
        let done = work.await;
        exports.end().await;
        done
    }
    #[cfg(not(feature = "otel"))]
    work.await
}
