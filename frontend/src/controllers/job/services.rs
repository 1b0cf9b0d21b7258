//! The services that long work calls besides the cluster: the source of bundles, and the fusion service.
//!
//! They are traits, so that tests can implement them.

use crate::bundles::{self, Application, Fetcher};
use crate::fusion::{self, RenderedText};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::Client;
use streams_api::BundleReference;
use streams_proto::fusion::v1::{RenderRequest, ResizeRequest, ResizeResponse, SubmitRequest, SubmitResponse};

/// The source of bundles.
pub(crate) trait Bundles: Send + Sync {
    /// Fetches a bundle for a job in this namespace.
    fn fetch<'a>(
        &'a self,
        bundle: &'a BundleReference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Application, bundles::BundleError>>;

    /// The bundle with this digest, which a job in this namespace had before, if it was kept.
    fn kept<'a>(
        &'a self,
        bundle: &'a BundleReference,
        namespace: &'a str,
        sha256: &'a str,
    ) -> BoxFuture<'a, Result<Option<Application>, bundles::BundleError>>;

    /// A submission in this namespace failed because of the bundle with this digest.
    fn note_unusable(&self, namespace: &str, sha256: &str);
}

/// A fetcher, and the cluster that it reads secrets and ConfigMaps of bundles from.
pub(crate) struct ClusterBundles {
    pub(crate) fetcher: Fetcher,
    pub(crate) client: Client,
}

impl Bundles for ClusterBundles {
    fn fetch<'a>(
        &'a self,
        bundle: &'a BundleReference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Application, bundles::BundleError>> {
        Box::pin(self.fetcher.fetch(bundle, namespace, &self.client))
    }

    fn kept<'a>(
        &'a self,
        bundle: &'a BundleReference,
        namespace: &'a str,
        sha256: &'a str,
    ) -> BoxFuture<'a, Result<Option<Application>, bundles::BundleError>> {
        Box::pin(self.fetcher.kept(bundle, namespace, sha256))
    }

    fn note_unusable(&self, namespace: &str, sha256: &str) {
        self.fetcher.note_unusable(namespace, sha256);
    }
}

/// The fusion service.
pub(crate) trait Fusion: Send + Sync {
    /// Compiles a job for the first time.
    fn submit(&self, request: SubmitRequest) -> BoxFuture<'_, Result<SubmitResponse, fusion::FusionError>>;

    /// Compiles a job for other widths.
    fn resize(&self, request: ResizeRequest) -> BoxFuture<'_, Result<ResizeResponse, fusion::FusionError>>;

    /// Streams the texts of some PEs, in the order of the request.
    fn render(&self, request: RenderRequest) -> BoxStream<'static, Result<RenderedText, fusion::FusionError>>;
}

impl Fusion for fusion::Client {
    fn submit(&self, request: SubmitRequest) -> BoxFuture<'_, Result<SubmitResponse, fusion::FusionError>> {
        Box::pin(self.submit(request))
    }

    fn resize(&self, request: ResizeRequest) -> BoxFuture<'_, Result<ResizeResponse, fusion::FusionError>> {
        Box::pin(self.resize(request))
    }

    fn render(&self, request: RenderRequest) -> BoxStream<'static, Result<RenderedText, fusion::FusionError>> {
        self.render(request).boxed()
    }
}
