//! Which rights the methods of the elasticity API take (rule elasticity-29), and what its requests take in memory.
//!
//! Whoever changes a width has to have the right that an autoscaler has to have, and whoever looks the one that
//! `kubectl get` takes. A right may be one for single objects: then these are found first, and if one of them is not
//! there, nothing is said but that the right is missing.
//!
//! Knows: which objects a call is about. Must not know: how it is known who calls.

use super::Elasticity;
use super::service::MAX_REGIONS;
use super::view::ClusterView;
use crate::grpc::access::caller_of;
use crate::grpc::access::guarded::{Guarded, of_all};
use crate::grpc::access::reviewer::Right;
use crate::grpc::message::{RequestMessage, messages};
use crate::grpc::places::CallerName;
use kube::ResourceExt as _;
use std::collections::BTreeSet;
use streams_api::resize::name_of_key;
use streams_api::{ParallelRegion, Resize};
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityService;
use streams_proto::elasticity::v1::resize_request::DesiredWidth;
use streams_proto::elasticity::v1::{
    CancelRequest, CancelResponse, GetRegionRequest, GetResizeRequest, GetResizeResponse, ListRegionsRequest,
    ListRegionsResponse, ListResizesRequest, ListResizesResponse, Region, ResizeName, ResizeRequest, ResizeResponse,
    WatchRegionsRequest, WatchResizeRequest,
};
use tonic::{Code, Request, Response, Status};

messages! {
    ResizeRequest { namespace, job, regions, wait_for, idempotency_key, expected_generation, policy, dry_run }
    DesiredWidth { region, width, expected_width }
    GetRegionRequest { namespace, job, region }
    ListRegionsRequest { namespace, job, page_size, page_token }
    WatchRegionsRequest { namespace, job }
    ResizeName { namespace, job, request, idempotency_key }
    GetResizeRequest { name }
    ListResizesRequest { namespace, job, page_size, page_token }
    WatchResizeRequest { name }
    CancelRequest { name }
}

impl RequestMessage for ResizeRequest {}
impl RequestMessage for GetRegionRequest {}
impl RequestMessage for ListRegionsRequest {}
impl RequestMessage for WatchRegionsRequest {}
impl RequestMessage for ListResizesRequest {}

impl RequestMessage for GetResizeRequest {
    const NAMESPACE: &'static str = "name.namespace";
}

impl RequestMessage for WatchResizeRequest {
    const NAMESPACE: &'static str = "name.namespace";
}

impl RequestMessage for CancelRequest {
    const NAMESPACE: &'static str = "name.namespace";
}

/// To change widths in this namespace.
fn to_scale(namespace: &str) -> Right {
    Right::to::<ParallelRegion>("update", "scale", namespace)
}

/// To see regions of this namespace.
fn to_see_regions(verb: &'static str, namespace: &str) -> Right {
    Right::to::<ParallelRegion>(verb, "", namespace)
}

/// To see requests of this namespace.
fn to_see_resizes(verb: &'static str, namespace: &str) -> Right {
    Right::to::<Resize>(verb, "", namespace)
}

/// The namespace of a request that is named.
fn namespace_of(name: Option<&ResizeName>) -> &str {
    name.map(|name| name.namespace.as_str()).unwrap_or_default()
}

impl<V: ClusterView> Elasticity<V> {
    /// The names of the objects of these regions of a job; none if one of them is not there.
    async fn objects_of_regions(
        &self,
        caller: Option<CallerName>,
        namespace: &str,
        job: &str,
        regions: BTreeSet<String>,
    ) -> Result<Vec<String>, Status> {
        if regions.is_empty() || regions.len() > MAX_REGIONS {
            return Ok(Vec::new());
        }
        self.sees(namespace)?;
        let (namespace, job) = (namespace.to_owned(), job.to_owned());
        let look = move |service: &Self| {
            let object = |region: &String| service.view.region(&namespace, &job, region);
            let names: Option<Vec<String>> =
                regions.iter().map(|region| object(region).map(|object| object.name_any())).collect();
            names.unwrap_or_default()
        };
        self.look_for(caller.as_ref(), look).await
    }

    /// The names of the objects of the regions of a request; none if one of them, or the request, is not there, or
    /// cannot be.
    async fn objects_of_request(
        &self,
        caller: Option<CallerName>,
        name: Option<&ResizeName>,
    ) -> Result<Vec<String>, Status> {
        // Where this frontend does not see it, it is asked for, though its caller perhaps has no right.
        let found = match self.named_for(name.cloned(), caller.as_ref(), self.deadline(None)).await {
            Ok(found) => found,
            Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => return Ok(Vec::new()),
            Err(status) => return Err(status),
        };
        let regions = found.spec.regions.iter().map(|region| region.name.clone()).collect();
        self.objects_of_regions(caller, namespace_of(name), &found.spec.job_name, regions).await
    }

    /// The name of the object of a request, as the caller says it.
    async fn object_of_request(&self, name: Option<&ResizeName>) -> Result<Vec<String>, Status> {
        let Some(ResizeName { namespace, job, request, idempotency_key }) = name else { return Ok(Vec::new()) };
        Ok(match (request.is_empty(), idempotency_key.is_empty()) {
            (false, true) => vec![request.clone()],
            (true, false) => {
                self.sees(namespace)?;
                let job = self.view.job(namespace, job);
                job.map(|job| name_of_key(&job, idempotency_key)).into_iter().collect()
            }
            _ => Vec::new(),
        })
    }
}

#[tonic::async_trait]
impl<V: ClusterView> ElasticityService for Guarded<Elasticity<V>> {
    type WatchResizeStream = <Elasticity<V> as ElasticityService>::WatchResizeStream;
    type WatchRegionsStream = <Elasticity<V> as ElasticityService>::WatchRegionsStream;

    /// A dry run takes the same right, as one of the API server does.
    async fn resize(&self, call: Request<ResizeRequest>) -> Result<Response<ResizeResponse>, Status> {
        let ResizeRequest { namespace, job, regions, .. } = call.get_ref();
        // Of a list that is too long none is taken: whoever has no right could have half a million of them sorted.
        let regions = Some(regions.as_slice()).filter(|regions| regions.len() <= MAX_REGIONS).unwrap_or_default();
        let regions = regions.iter().map(|desired| desired.region.clone());
        let named =
            |service| Elasticity::objects_of_regions(service, caller_of(&call), namespace, job, regions.collect());
        self.admit(&call, to_scale(namespace), named).await?.resize(call).await
    }

    async fn get_region(&self, call: Request<GetRegionRequest>) -> Result<Response<Region>, Status> {
        let GetRegionRequest { namespace, job, region } = call.get_ref();
        let regions = || [region.clone()].into();
        let named = |service| Elasticity::objects_of_regions(service, caller_of(&call), namespace, job, regions());
        self.admit(&call, to_see_regions("get", namespace), named).await?.get_region(call).await
    }

    async fn list_regions(&self, call: Request<ListRegionsRequest>) -> Result<Response<ListRegionsResponse>, Status> {
        let right = to_see_regions("list", &call.get_ref().namespace);
        self.admit(&call, right, of_all).await?.list_regions(call).await
    }

    async fn get_resize(&self, call: Request<GetResizeRequest>) -> Result<Response<GetResizeResponse>, Status> {
        let name = call.get_ref().name.as_ref();
        let named = |service| Elasticity::object_of_request(service, name);
        self.admit(&call, to_see_resizes("get", namespace_of(name)), named).await?.get_resize(call).await
    }

    async fn list_resizes(&self, call: Request<ListResizesRequest>) -> Result<Response<ListResizesResponse>, Status> {
        let right = to_see_resizes("list", &call.get_ref().namespace);
        self.admit(&call, right, of_all).await?.list_resizes(call).await
    }

    async fn cancel(&self, call: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let name = call.get_ref().name.as_ref();
        let named = |service| Elasticity::objects_of_request(service, caller_of(&call), name);
        self.admit(&call, to_scale(namespace_of(name)), named).await?.cancel(call).await
    }

    async fn watch_resize(
        &self,
        call: Request<WatchResizeRequest>,
    ) -> Result<Response<Self::WatchResizeStream>, Status> {
        let name = call.get_ref().name.as_ref();
        let named = |service| Elasticity::object_of_request(service, name);
        self.admit(&call, to_see_resizes("watch", namespace_of(name)), named).await?.watch_resize(call).await
    }

    async fn watch_regions(
        &self,
        call: Request<WatchRegionsRequest>,
    ) -> Result<Response<Self::WatchRegionsStream>, Status> {
        let right = to_see_regions("watch", &call.get_ref().namespace);
        self.admit(&call, right, of_all).await?.watch_regions(call).await
    }
}
