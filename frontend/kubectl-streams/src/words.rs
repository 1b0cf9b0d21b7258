//! Words for people: of errors, of numbers, and of texts that somebody else has written.

use std::error::Error;
use streams_kubernetes::error::with_causes;

/// An error with its causes, without saying anything twice: of the API server only what it said.
pub(crate) fn of_error(error: &(dyn Error + 'static)) -> String {
    one_line(&with_causes(error))
}

/// Whether nobody reads what is printed any more, as with `| head`: there is nothing to complain of. Errors of
/// connections are those of a client, which have this as a cause.
pub(crate) fn is_of_a_reader_that_has_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// So many PEs.
pub(crate) fn pes(count: u32) -> String {
    if count == 1 { "1 PE".to_owned() } else { format!("{count} PEs") }
}

/// What to say of an object that has no status.
pub(crate) fn unseen(what: &str) -> String {
    format!("no frontend has looked at this {what} yet: is one running, and does it look after this namespace?")
}

/// Text of somebody else, without what would end a column or move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;
    use kube::core::Status;
    use kube::runtime::watcher;

    #[test]
    fn who_stops_reading_hears_of_no_error_and_who_loses_a_connection_does() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let table = [
            (anyhow::Error::from(broken()), true),
            (std::io::Error::from(std::io::ErrorKind::ConnectionReset).into(), false),
            (kube::Error::Service(Box::new(broken())).into(), false),
        ];
        for (error, expected) in table {
            assert_eq!(is_of_a_reader_that_has_gone(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn the_api_server_is_quoted_once_and_without_its_whole_answer() {
        let api = || kube::Error::Api(Status::failure("Resize \"r\" is invalid: no", "Invalid").with_code(422).boxed());
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "nobody is there");
        let table = [
            (anyhow::Error::from(api()), "Resize \"r\" is invalid: no"),
            (Err::<(), _>(api()).context("not taken").unwrap_err(), "not taken: Resize \"r\" is invalid: no"),
            (
                watcher::Error::InitialListFailed(api()).into(),
                "failed to perform initial object list: Resize \"r\" is invalid: no",
            ),
            (kube::Error::Service(Box::new(refused)).into(), "ServiceError: nobody is there"),
            (anyhow::anyhow!("inner").context("outer"), "outer: inner"),
        ];
        for (error, expected) in table {
            assert_eq!(of_error(error.as_ref()), expected);
        }
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(pes), ["0 PEs", "1 PE", "2 PEs"]);
    }
}
