//! What the guard of a service has to know of a request (rule elasticity-27). Pure.
//!
//! A request may take far more in memory than it had as bytes: an entry of a list takes its own size, however little is
//! said in it.

/// Bytes that a text takes at least, if there is any.
const TEXT: usize = 32;

/// A request.
pub(crate) trait RequestMessage: Sync {
    /// The field with its namespace.
    const NAMESPACE: &'static str = "namespace";

    /// Bytes that it takes in memory, at most; what each request takes is left out.
    fn in_memory(&self) -> usize;
}

/// Bytes that a list takes whose entries have so many texts each; what is in them is left out.
pub(crate) fn of_list<T>(list: &Vec<T>, texts: usize) -> usize {
    list.capacity().saturating_mul(size_of::<T>()).saturating_add(list.len().saturating_mul(texts * TEXT))
}

/// Requests without lists, each with the field of its namespace: they take in memory what they have as bytes.
macro_rules! without_lists {
    ($($message:ty: $namespace:literal,)*) => {$(
        impl $crate::grpc::message::RequestMessage for $message {
            const NAMESPACE: &'static str = $namespace;

            fn in_memory(&self) -> usize {
                prost::Message::encoded_len(self)
            }
        }
    )*};
}

pub(crate) use without_lists;

#[cfg(test)]
impl RequestMessage for () {
    fn in_memory(&self) -> usize {
        0
    }
}
