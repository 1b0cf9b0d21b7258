//! What the guard of a service has to know of a request (rule elasticity-27). Pure.
//!
//! A request may take far more in memory than it had as bytes, or than it says. An entry of a list takes its own size,
//! however little is said in it. A field may be sent several times, of which the last one counts: its text keeps the
//! room of the longest. So what is counted is what there is room for, and never what is said.
//!
//! Invariant: each field is counted. A message with one that is not, or whose kind is not known here, does not compile.

/// What an allocator takes beside what it is asked for, at most: so many bytes, and this part of it.
const ALLOCATION: usize = 32;
const ALLOCATION_PART: usize = 4;

/// A request.
pub(crate) trait RequestMessage: InMemory + Sync {
    /// The field with its namespace.
    const NAMESPACE: &'static str = "namespace";
}

/// A request, or a part of it.
pub(crate) trait InMemory {
    /// Bytes that it takes in memory at most, beside those of its own type.
    fn in_memory(&self) -> usize;
}

impl InMemory for String {
    fn in_memory(&self) -> usize {
        allocated(self.capacity())
    }
}

impl<T: InMemory> InMemory for Vec<T> {
    fn in_memory(&self) -> usize {
        let entries: usize = self.iter().map(T::in_memory).sum();
        allocated(self.capacity() * size_of::<T>()) + entries
    }
}

impl<T: InMemory> InMemory for Option<T> {
    fn in_memory(&self) -> usize {
        self.as_ref().map_or(0, T::in_memory)
    }
}

/// Bytes that there are of an allocation for so many.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes + bytes / ALLOCATION_PART + ALLOCATION }
}

/// These have all that they are in their own type.
macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl InMemory for $kind {
            fn in_memory(&self) -> usize {
                0
            }
        }
    )*};
}

plain! { bool, i32, u32, u64 }

/// Messages, each with all of its fields.
macro_rules! messages {
    ($($message:ident { $($field:ident),* })*) => {$(
        impl $crate::grpc::message::InMemory for $message {
            fn in_memory(&self) -> usize {
                let Self { $($field),* } = self;
                let fields: &[usize] = &[$($crate::grpc::message::InMemory::in_memory($field)),*];
                fields.iter().sum()
            }
        }
    )*};
}

pub(crate) use messages;

#[cfg(test)]
plain! { () }

#[cfg(test)]
impl RequestMessage for () {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_or_list_counts_with_its_room() {
        let mut text = "a".repeat(1_000);
        text.clear();
        assert!(text.in_memory() >= 1_000);
        let mut list = vec![text, String::new()];
        assert!(list.in_memory() >= 1_000 + 2 * size_of::<String>());
        list.clear();
        list.shrink_to(1);
        assert!(list.in_memory() >= size_of::<String>());
        assert_eq!((String::new().in_memory(), Vec::<String>::new().in_memory(), None::<u64>.in_memory()), (0, 0, 0));
    }
}
