//! Warnings of this program, as they are logged on this thread.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Hears warnings for as long as it lives.
pub(super) struct Warnings {
    heard: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Warnings {
    pub(super) fn listen() -> Self {
        let heard = Arc::default();
        let guard = tracing::subscriber::set_default(Ear(Arc::clone(&heard)));
        Self {
            heard,
            _guard: guard,
        }
    }

    /// Those with this text in them.
    pub(super) fn of(&self, text: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let of = heard.iter().filter(|warning| warning.contains(text));
        of.cloned().collect()
    }
}

struct Ear(Arc<Mutex<Vec<String>>>);

impl Subscriber for Ear {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.is_event() && *of.level() <= Level::WARN && of.target().starts_with("muster")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}
