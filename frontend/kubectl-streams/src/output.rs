//! Lines of commands that do something. If nobody reads them any more, as with `| head`, that is no reason not to do
//! it, nor to say another thing of it by the exit status.
//!
//! Knows: who reads. Must not know: what is said.

use std::io::{ErrorKind, Result, Write, stderr, stdout};

/// Prints a line: what was made.
///
/// # Errors
/// It cannot be written, although somebody reads, as to a full disk.
pub(crate) fn print(line: &str) -> Result<()> {
    print_to(&mut stdout().lock(), line)
}

/// Says a line of how it goes. Whoever does not get it has the exit status.
pub(crate) fn tell(line: &str) {
    // There is nobody to complain to.
    let _ = writeln!(stderr().lock(), "{line}");
}

fn print_to(output: &mut impl Write, line: &str) -> Result<()> {
    match writeln!(output, "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    /// Takes nothing, for this reason.
    struct Closed(ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> Result<usize> {
            Err(Error::from(self.0))
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is() {
        for (kind, expected) in [(ErrorKind::BrokenPipe, true), (ErrorKind::StorageFull, false)] {
            assert_eq!(print_to(&mut Closed(kind), "made").is_ok(), expected, "{kind}");
        }
        let mut printed = Vec::new();
        print_to(&mut printed, "made").unwrap();
        assert_eq!(printed, b"made\n");
    }
}
