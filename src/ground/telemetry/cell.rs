//! A cell in the kernel, with its span and its duration.

use std::time::Instant;

use super::api::{Context, Span, is_on, record};
use super::names;
use super::value::{MetricInstrument, SpanAttribute, WorkKind, name};

/// The end of a cell about which nobody has said it: its session has stopped.
const STOPPED: &str = "stopped";

/// The end of a cell whose code has run without an exception.
const FINISHED: &str = "finished";

/// A running cell. Dropping it ends it.
pub(crate) struct CellSpan(Option<(Span, Instant)>);

impl CellSpan {
    /// A cell that starts now. `parent` was the context where it was put into the queue.
    pub(crate) fn begin(parent: &Context, author: &'static str) -> Self {
        Self(is_on().then(|| {
            let attributes = vec![(names::CELL_AUTHOR, author.into())];
            let span = Span::begin("ipybox.cell".to_owned(), WorkKind::Internal, parent, None, attributes);
            (span, Instant::now())
        }))
    }

    /// The context of what its code does.
    pub(crate) fn context(&self) -> Context {
        self.0.as_ref().map_or_else(Context::default, |(span, _)| span.context())
    }

    /// It has ended in this way, by an exception of this class.
    pub(crate) fn ended(mut self, status: &'static str, exception: Option<&str>) {
        self.end(status, exception);
    }

    fn end(&mut self, status: &'static str, exception: Option<&str>) {
        let Some((span, begun)) = self.0.take() else { return };
        let mut attributes: Vec<SpanAttribute> = vec![(names::CELL_STATUS, status.into())];
        if status != FINISHED {
            attributes.push((names::ERROR_TYPE, status.into()));
            span.has_failed();
        }
        attributes.iter().for_each(|attribute| span.set(attribute.clone()));
        // Code chooses the name of the class, and a metric must not have any number of them.
        if let Some(class) = exception {
            span.set((names::EXCEPTION_TYPE, name(class).into()));
        }
        record(MetricInstrument::Cell, begun.elapsed().as_secs_f64(), &attributes);
    }
}

impl Drop for CellSpan {
    fn drop(&mut self) {
        self.end(STOPPED, None);
    }
}
