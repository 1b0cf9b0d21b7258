//! The answers to callers that break the contract, and the descriptions of the contract.

use super::*;
use streams_proto::fusion::ERROR_DOMAIN;
use tonic::Code;
use tonic_types::StatusExt;

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no details: {status}"));
    assert_eq!(info.domain, ERROR_DOMAIN);
    info.reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_application_is_an_error_of_the_caller() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let status = submit(&mut client, "job", "nonsense").await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "APPLICATION_REJECTED"));
    assert_eq!(status.get_details_error_info().unwrap().metadata["stage"], "logical-model");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_refused_before_any_work() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let statuses = [
        soon(client.submit(pb::SubmitRequest::default())).await.unwrap_err(),
        soon(client.submit(submit_request("", "1 1"))).await.unwrap_err(),
        soon(client.resize(pb::ResizeRequest::default())).await.unwrap_err(),
        soon(client.render(pb::RenderRequest::default())).await.unwrap_err(),
        soon(client.render(render_request("job", "1 1", b"layout", &[0, 0]))).await.unwrap_err(),
    ];
    for status in statuses {
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "APPLICATION_REJECTED"));
        assert!(!status.get_details_bad_request().unwrap().field_violations.is_empty());
    }
    assert_eq!(replica.gate.begun(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_do_not_fit() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "2 10").await.unwrap().layout;
    let damaged = soon(client.resize(full_resize("job", "2 10", b"damaged", 2))).await.unwrap_err();
    assert_eq!((damaged.code(), reason(&damaged).as_str()), (Code::InvalidArgument, "LAYOUT_REJECTED"));

    let unknown = texts(&mut client, render_request("job", "2 10", &layout, &[0, 2])).await.unwrap_err();
    assert_eq!((unknown.code(), reason(&unknown).as_str()), (Code::InvalidArgument, "APPLICATION_REJECTED"));
    assert_eq!(unknown.get_details_bad_request().unwrap().field_violations[0].field, "pe_ids[1]");

    let mut request = render_request("job", "2 10", &layout, &[0]);
    request.compiler = "another".into();
    let other = texts(&mut client, request).await.unwrap_err();
    assert_eq!((other.code(), reason(&other).as_str()), (Code::FailedPrecondition, "OTHER_COMPILER"));
    assert_eq!(other.get_details_error_info().unwrap().metadata["compiler"], "toy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defect_of_the_compiler_costs_one_request() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    let status = submit(&mut client, "job", "panic").await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("has a defect"), "says more than it should: {}", status.message());
    submit(&mut client, "job", "1 1").await.unwrap();
    let (_, metrics) = replica.page("/metrics").await;
    assert!(metrics.contains("fusion_defects_total 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_refused_and_does_no_harm() {
    use tonic::client::Grpc;
    use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

    /// Sends bytes as they are.
    #[derive(Clone, Default)]
    struct Noise;

    impl Codec for Noise {
        type Encode = Vec<u8>;
        type Decode = ();
        type Encoder = Self;
        type Decoder = Self;
        fn encoder(&mut self) -> Self {
            Self
        }
        fn decoder(&mut self) -> Self {
            Self
        }
    }

    impl Encoder for Noise {
        type Item = Vec<u8>;
        type Error = Status;
        fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
            bytes::BufMut::put_slice(buffer, &item);
            Ok(())
        }
        fn buffer_settings(&self) -> BufferSettings {
            BufferSettings::default()
        }
    }

    impl Decoder for Noise {
        type Item = ();
        type Error = Status;
        fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
            Ok(Some(()))
        }
        fn buffer_settings(&self) -> BufferSettings {
            BufferSettings::default()
        }
    }

    let replica = replica(settings()).await;
    let mut grpc = Grpc::new(replica.channel().await);
    // A simple generator, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for method in ["Submit", "Resize", "Render", "Plan", "Explain"] {
        let path = format!("/streams.fusion.v1.FusionService/{method}");
        for length in [0, 1, 2, 10, 100, 1000, 100_000] {
            let noise: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            grpc.ready().await.unwrap();
            let path = tonic::codegen::http::uri::PathAndQuery::try_from(path.clone()).unwrap();
            let status = soon(grpc.unary(tonic::Request::new(noise), path, Noise)).await.unwrap_err();
            let expected = [Code::InvalidArgument, Code::Internal];
            assert!(expected.contains(&status.code()), "{method}, {length} bytes: {status}");
        }
    }
    let mut client = replica.client().await;
    submit(&mut client, "job", "1 1").await.unwrap();
    assert_eq!(replica.gate.begun(), ["parse ", "submit job"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_time_out_is_refused() {
    let replica = replica(settings()).await;
    let mut request = tonic::Request::new(submit_request("job", "1 1"));
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let status = soon(replica.client().await.submit(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_tells_what_is_served() {
    let replica = replica(settings()).await;
    let channel = replica.channel().await;
    let expected = ["grpc.health.v1.Health", "streams.fusion.v1.FusionService"];
    macro_rules! check {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            let ask = |message_request| {
                let request = ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
                let mut client = ServerReflectionClient::new(channel.clone());
                async move {
                    let answers = soon(client.server_reflection_info(tokio_stream::once(request))).await.unwrap();
                    soon(answers.into_inner().message()).await.unwrap().unwrap().message_response.unwrap()
                }
            };
            let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())).await
            else {
                panic!("no list")
            };
            let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
            names.retain(|name| !name.starts_with("grpc.reflection."));
            names.sort();
            assert_eq!(names, expected);
            for symbol in ["streams.fusion.v1.Plan", "streams.fusion.v1.FusionService.Explain", "google.rpc.ErrorInfo"]
            {
                let symbol = MessageRequest::FileContainingSymbol(symbol.into());
                assert!(matches!(ask(symbol).await, MessageResponse::FileDescriptorResponse(_)));
            }
        }};
    }
    check!(v1);
    check!(v1alpha);
}
