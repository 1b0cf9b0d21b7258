//! Which lines of libraries that do not know what is secret are in the log. Pure. None is in a trace.
//!
//! Some write whole answers of others into their lines, and answers have keys and tokens. Whoever asks for more lines
//! of this program asks for none of those; only a filter that names such a library by its own name shows them.

use tracing::Metadata;

/// Says of each line, and of each span of the log, whether this filter may show it: what is of these libraries only as
/// far as a part of the filter names it.
pub(super) fn are_harmless_or_named(
    talkative: &'static [&'static str],
    filter: &str,
) -> impl Fn(&Metadata<'_>) -> bool + use<> {
    let is_talkative = move |target: &str| is_of(talkative, target);
    // A part of the filter is `target[span{field=value}]=level`, each of which may be missing. It is not trimmed: of
    // what begins with a blank the filter makes another target.
    let targets = filter.split(',').filter_map(|part| part.split(['[', '=']).next());
    let named: Vec<String> = targets.filter(|target| is_talkative(target)).map(str::to_owned).collect();
    move |line: &Metadata<'_>| {
        let target = line.target();
        !is_talkative(target) || named.iter().any(|named| target.starts_with(named.as_str()))
    }
}

/// Whether what has this target is of one of these libraries.
pub(super) fn is_of(libraries: &[&str], target: &str) -> bool {
    libraries.iter().any(|library| target.starts_with(*library))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::filter::{EnvFilter, FilterExt, FilterFn};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// Keeps which modules have written lines.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().push(event.metadata().target().to_owned());
        }
    }

    #[test]
    fn a_library_that_writes_whole_answers_is_in_no_log_that_does_not_ask_for_it_by_name() {
        // filter -> whose warnings are shown
        let table: [(&str, &[&str]); 8] = [
            ("info", &["program"]),
            ("trace", &["program"]),
            ("info,program::part=debug", &["program"]),
            ("library=off,info", &["program"]),
            ("lib=trace,program=off", &[]),
            // Everything within a span.
            ("[work]=trace", &["program"]),
            ("info,library=warn", &["library::client", "library::other", "program"]),
            ("info,library::client=debug", &["library::client", "program"]),
        ];
        for (filter, expected) in table {
            let kept = Arc::new(Mutex::new(Vec::new()));
            let shown = EnvFilter::new(filter).and(FilterFn::new(are_harmless_or_named(&["library"], filter)));
            let layer = Kept(Arc::clone(&kept)).with_filter(shown);
            let _subscribed = testing::subscribe(tracing_subscriber::registry().with(layer));
            tracing::error_span!("work").in_scope(|| {
                tracing::warn!(target: "library::client", "an answer with a key");
                tracing::warn!(target: "library::other", "an answer with a token");
                tracing::warn!(target: "program", "nothing secret");
            });
            let mut shown = kept.lock().clone();
            shown.sort();
            assert_eq!(shown, expected, "{filter}");
        }
    }
}
