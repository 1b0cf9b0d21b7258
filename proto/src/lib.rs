//! The gRPC contract of streams-operator.
//!
//! [`fusion`] is spoken between the frontend and the fusion service, [`elasticity`] between load balancers and the
//! frontend, [`subscription`] between the frontend and programs that change what is exported and imported. The `.proto`
//! files beside this crate are the documentation; [`DESCRIPTOR_SET`] carries them, with their comments, to reflection.
//!
//! Knows: messages. Must not know: what anybody does with them.

/// Compiling applications: `streams.fusion.v1`.
pub mod fusion {
    /// Version 1.
    #[allow(missing_docs, clippy::all, unreachable_pub, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("streams.fusion.v1");
    }

    /// `google.rpc.ErrorInfo.domain` of the errors of this service.
    pub const ERROR_DOMAIN: &str = "fusion.streams.ibm.com";

    /// Metadata of an answer: how long workers have worked on the call, in milliseconds (rule service-33).
    pub const WORKED: &str = "streams-worked-milliseconds";
}

/// Changing widths from outside: `streams.elasticity.v1`.
pub mod elasticity {
    /// Version 1.
    #[allow(missing_docs, clippy::all, unreachable_pub, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("streams.elasticity.v1");
    }

    /// `google.rpc.ErrorInfo.domain` of the errors of this service.
    pub const ERROR_DOMAIN: &str = "elasticity.streams.ibm.com";
}

/// Changing exports and imports from outside: `streams.subscription.v1`.
pub mod subscription {
    /// Version 1.
    #[allow(missing_docs, clippy::all, unreachable_pub, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("streams.subscription.v1");
    }

    /// `google.rpc.ErrorInfo.domain` of the errors of this service.
    pub const ERROR_DOMAIN: &str = "subscription.streams.ibm.com";
}

/// All files of the contract as an encoded `google.protobuf.FileDescriptorSet`, for server reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
