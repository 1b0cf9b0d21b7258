//! Answers in the form in which they are sent.
//!
//! The worker that computes an answer encodes it, too. So an answer with many readers is made once, and the threads
//! that serve connections do not encode what is large.
//!
//! A small answer is sent by tonic, which copies it for each reader and compresses it. A large one is sent as it is:
//! all its readers share its bytes, and each has no more in memory than those that are on their way to it. It has
//! memory of its own from the budget of all calls, until the last of them has read it (rule service-27).
//!
//! Knows: messages as bytes, how they are framed, the codec of tonic, memory. Must not know: what a message says, who
//! reads it.
//!
//! Invariant: the bytes of a large answer are in memory once.

use super::errors::Failure;
use super::memory::{Denied, Share};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use prost::Message;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use streams_process::http2;
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::{Response, Status};
use tonic_prost::ProstDecoder;

/// Bytes of the largest answer that is small: it has room in what every call takes.
pub(super) const SMALL: usize = 64 << 10;

/// An answer. Clones share its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    bytes: Bytes,
    /// The memory of a large answer, once somebody wants to read it.
    memory: Arc<OnceCell<Result<Share, Denied>>>,
}

impl Encoded {
    pub(crate) fn of(message: &impl Message) -> Self {
        Self { bytes: message.encode_to_vec().into(), memory: Arc::default() }
    }

    /// Takes the memory that the answer needs until it is read, if nobody has taken it yet. `share` is that of a call
    /// that wants to read it.
    ///
    /// # Errors
    ///
    /// There is not so much. Then there is none for any other call that shares the answer.
    pub(crate) async fn take_memory(&self, share: &Share) -> Result<(), Denied> {
        if self.bytes.len() <= SMALL {
            return Ok(());
        }
        let take = async || {
            let share = share.empty();
            share.take(self.bytes.len() as u64).await?;
            Ok(share)
        };
        self.memory.get_or_init(take).await.as_ref().map(drop).map_err(|denied| *denied)
    }

    /// For tonic to send. It gets an empty message in place of a large one, which [`shared`] puts back.
    pub(crate) fn response(self) -> Response<Self> {
        if self.bytes.len() <= SMALL {
            return Response::new(self);
        }
        let mut response = Response::new(Self { bytes: Bytes::new(), memory: Arc::default() });
        response.extensions_mut().insert(self);
        response
    }
}

/// The response that tonic has made of [`Encoded::response`], with a body of which the bytes are shared if they are
/// many.
pub(crate) fn shared(mut response: http::Response<Body>) -> http::Response<Body> {
    let Some(encoded) = response.extensions_mut().remove::<Encoded>() else { return response };
    let length = match framed_length(encoded.bytes.len()) {
        Ok(length) => length,
        Err(failure) => return failure.status().into_http(),
    };
    // The transport may have its bytes for longer than the body.
    http2::hold(response.extensions_mut(), Arc::clone(&encoded.memory));
    // Whoever waits for a large answer has it sooner without, in a cluster, and no thread that serves others compresses
    // it for each of its readers.
    response.headers_mut().remove("grpc-encoding");
    let mut prefix = BytesMut::with_capacity(5);
    prefix.put_u8(0);
    prefix.put_u32(length);
    response.map(|_| Body::new(SharedBody { parts: Parts::Prefix(prefix.freeze()), encoded }))
}

/// The length of an answer, as it is written before it.
///
/// # Errors
///
/// No frame has room for it: every call with this request would fail, so nobody should repeat it (rule service-27).
fn framed_length(bytes: usize) -> Result<u32, Failure> {
    u32::try_from(bytes).map_err(|_| {
        Failure::malformed("", format!("has an answer of {bytes} bytes; at most {} can be sent", u32::MAX))
    })
}

/// The body of a large answer.
struct SharedBody {
    /// What comes next.
    parts: Parts,
    encoded: Encoded,
}

enum Parts {
    Prefix(Bytes),
    Message,
    Status,
    Nothing,
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, next) = match &self.parts {
            Parts::Prefix(prefix) => (Ok(Frame::data(prefix.clone())), Parts::Message),
            Parts::Message => (Ok(Frame::data(self.encoded.bytes.clone())), Parts::Status),
            Parts::Status => {
                let mut trailers = HeaderMap::new();
                (Status::ok("").add_header(&mut trailers).map(|()| Frame::trailers(trailers)), Parts::Nothing)
            }
            Parts::Nothing => return Poll::Ready(None),
        };
        self.parts = next;
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.parts, Parts::Nothing)
    }
}

/// Decodes requests of the type `M`, and sends answers that are encoded already.
pub(crate) struct EncodedAnswers<M>(PhantomData<M>);

impl<M> EncodedAnswers<M> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M: Message + Default + 'static> Codec for EncodedAnswers<M> {
    type Encode = Encoded;
    type Decode = M;
    type Encoder = SendAsIs;
    type Decoder = ProstDecoder<M>;

    fn encoder(&mut self) -> SendAsIs {
        SendAsIs
    }

    fn decoder(&mut self) -> ProstDecoder<M> {
        ProstDecoder::default()
    }
}

/// See [`EncodedAnswers`].
#[derive(Debug)]
pub(crate) struct SendAsIs;

impl Encoder for SendAsIs {
    type Item = Encoded;
    type Error = Status;

    fn encode(&mut self, Encoded { bytes, .. }: Encoded, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // Once, instead of twice as much again and again.
        to.reserve(bytes.len());
        to.put(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::future;
    use streams_proto::fusion::v1 as pb;
    use tonic_types::StatusExt;

    fn as_tonic_does(mut response: Response<Encoded>) -> http::Response<Body> {
        let mut http = http::Response::new(Body::empty());
        http.extensions_mut().extend(std::mem::take(response.extensions_mut()));
        http
    }

    /// What a reader gets: the data of the body, and the code at its end.
    async fn read(response: Response<Encoded>) -> (Vec<Bytes>, Option<tonic::Code>) {
        let mut body = shared(as_tonic_does(response)).into_body();
        let (mut data, mut code) = (Vec::new(), None);
        while let Some(frame) = future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame.unwrap().into_data() {
                Ok(bytes) => data.push(bytes),
                Err(frame) => code = frame.trailers_ref().and_then(Status::from_header_map).map(|status| status.code()),
            }
        }
        assert!(body.is_end_stream());
        (data, code)
    }

    #[test]
    fn an_answer_that_no_frame_has_room_for_is_no_reason_to_come_again() {
        let most = u32::MAX as usize;
        assert_eq!(framed_length(most).unwrap(), u32::MAX);
        let status = framed_length(most + 1).unwrap_err().status();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.get_details_retry_info().is_none());
        assert!(status.message().contains("4294967296 bytes"), "{status}");
    }

    #[tokio::test]
    async fn all_readers_of_a_large_answer_read_the_same_bytes() {
        let message = pb::ExplainResponse { explanation: None, text: "x".repeat(3 * SMALL) };
        let encoded = Encoded::of(&message);
        for _ in 0..3 {
            let (data, code) = read(encoded.clone().response()).await;
            let length = u32::try_from(message.encoded_len()).unwrap().to_be_bytes();
            assert_eq!(*data[0], [&[0], &length[..]].concat());
            assert_eq!((data[1].as_ptr(), data[1].len()), (encoded.bytes.as_ptr(), encoded.bytes.len()));
            assert_eq!((data.len(), code), (2, Some(tonic::Code::Ok)));
        }
    }
}
