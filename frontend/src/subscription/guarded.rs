//! Which rights the methods of the subscription API take (rule elasticity-29): those that `kubectl get` and `kubectl
//! patch --subresource=status` take; and what its requests take in memory.
//!
//! Knows: which objects a call is about. Must not know: how it is known who calls.

use super::SubscriptionApi;
use crate::grpc::access::guarded::{Guarded, of_all};
use crate::grpc::access::reviewer::Right;
use crate::grpc::message::{InMemory, RequestMessage, messages};
use std::future::{Ready, ready};
use streams_api::{Export, Import};
use streams_kubernetes::cluster::Cluster;
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    EditImportedStreams, EditProperties, GetExportRequest, GetExportResponse, GetImportRequest, GetImportResponse,
    ImportedStreams, ListExportsRequest, ListExportsResponse, ListImportsRequest, ListImportsResponse, NamedStream,
    Properties, Property, Reset, Subscription, UpdateExportRequest, UpdateExportResponse, UpdateImportRequest,
    UpdateImportResponse,
};
use tonic::{Request, Response, Status};

messages! {
    GetExportRequest { namespace, name }
    ListExportsRequest { namespace, job, page_size, page_token }
    UpdateExportRequest { namespace, name, expected_etag, change }
    EditProperties { add, replace, remove }
    Properties { properties }
    Property { name, r#type, values }
    GetImportRequest { namespace, name }
    ListImportsRequest { namespace, job, page_size, page_token }
    UpdateImportRequest { namespace, name, expected_etag, change }
    EditImportedStreams { subscription, filter }
    ImportedStreams { named_streams, subscription, filter }
    NamedStream { application, application_scope, stream, operator }
    Subscription { expression, application_scope, operator }
    Reset {}
}

impl InMemory for OfExport {
    fn in_memory(&self) -> usize {
        match self {
            Self::Set(set) => set.in_memory(),
            Self::Edit(edit) => edit.in_memory(),
            Self::Reset(reset) => reset.in_memory(),
        }
    }
}

impl InMemory for OfImport {
    fn in_memory(&self) -> usize {
        match self {
            Self::Set(set) => set.in_memory(),
            Self::Edit(edit) => edit.in_memory(),
            Self::Reset(reset) => reset.in_memory(),
        }
    }
}

impl RequestMessage for GetExportRequest {}
impl RequestMessage for ListExportsRequest {}
impl RequestMessage for UpdateExportRequest {}
impl RequestMessage for GetImportRequest {}
impl RequestMessage for ListImportsRequest {}
impl RequestMessage for UpdateImportRequest {}

/// The object that a call names, whether it is there or not.
fn one<S>(name: &str) -> impl FnOnce(&S) -> Ready<Result<Vec<String>, Status>> + use<S> {
    let names = if name.is_empty() { Vec::new() } else { vec![name.to_owned()] };
    move |_| ready(Ok(names))
}

#[tonic::async_trait]
impl<C: Cluster> SubscriptionService for Guarded<SubscriptionApi<C>> {
    async fn get_export(&self, call: Request<GetExportRequest>) -> Result<Response<GetExportResponse>, Status> {
        let GetExportRequest { namespace, name } = call.get_ref();
        let right = Right::to::<Export>("get", "", namespace);
        self.admit(&call, right, one(name)).await?.get_export(call).await
    }

    async fn list_exports(&self, call: Request<ListExportsRequest>) -> Result<Response<ListExportsResponse>, Status> {
        let right = Right::to::<Export>("list", "", &call.get_ref().namespace);
        self.admit(&call, right, of_all).await?.list_exports(call).await
    }

    async fn update_export(
        &self,
        call: Request<UpdateExportRequest>,
    ) -> Result<Response<UpdateExportResponse>, Status> {
        let UpdateExportRequest { namespace, name, .. } = call.get_ref();
        let right = Right::to::<Export>("patch", "status", namespace);
        self.admit(&call, right, one(name)).await?.update_export(call).await
    }

    async fn get_import(&self, call: Request<GetImportRequest>) -> Result<Response<GetImportResponse>, Status> {
        let GetImportRequest { namespace, name } = call.get_ref();
        let right = Right::to::<Import>("get", "", namespace);
        self.admit(&call, right, one(name)).await?.get_import(call).await
    }

    async fn list_imports(&self, call: Request<ListImportsRequest>) -> Result<Response<ListImportsResponse>, Status> {
        let right = Right::to::<Import>("list", "", &call.get_ref().namespace);
        self.admit(&call, right, of_all).await?.list_imports(call).await
    }

    async fn update_import(
        &self,
        call: Request<UpdateImportRequest>,
    ) -> Result<Response<UpdateImportResponse>, Status> {
        let UpdateImportRequest { namespace, name, .. } = call.get_ref();
        let right = Right::to::<Import>("patch", "status", namespace);
        self.admit(&call, right, one(name)).await?.update_import(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    /// Each has two bytes where it is sent.
    #[test]
    fn entries_of_lists_count_though_they_say_nothing() {
        const ENTRIES: usize = 10_000;
        let values = vec![Property { values: vec![String::new(); ENTRIES], ..Property::default() }];
        let many = vec![Property::default(); ENTRIES];
        let edit = |add, replace, remove| OfExport::Edit(EditProperties { add, replace, remove });
        let table = [
            (OfExport::Set(Properties { properties: values.clone() }), size_of::<String>()),
            (OfExport::Set(Properties { properties: many.clone() }), size_of::<Property>()),
            (edit(values, Vec::new(), Vec::new()), size_of::<String>()),
            (edit(Vec::new(), many, Vec::new()), size_of::<Property>()),
            (edit(Vec::new(), Vec::new(), vec![String::new(); ENTRIES]), size_of::<String>()),
        ];
        for (change, entry) in table {
            let request = UpdateExportRequest { change: Some(change), ..UpdateExportRequest::default() };
            assert!(request.encoded_len() < 3 * ENTRIES && request.in_memory() >= ENTRIES * entry);
        }
        let named_streams = vec![NamedStream::default(); ENTRIES];
        let set = OfImport::Set(ImportedStreams { named_streams, ..ImportedStreams::default() });
        let request = UpdateImportRequest { change: Some(set), ..UpdateImportRequest::default() };
        assert!(request.encoded_len() < 3 * ENTRIES && request.in_memory() >= ENTRIES * size_of::<NamedStream>());
    }
}
