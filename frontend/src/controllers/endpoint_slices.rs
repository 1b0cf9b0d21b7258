//! EndpointSlices of Services that select no pods: they lead to the frontend.
//!
//! Nobody mirrors slices, so they are compared again from time to time.
//!
//! Knows: Services, addresses. Must not know: who listens there.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;
use kube::core::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use streams_api::names;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// When slices are compared again: somebody may have changed or deleted them.
pub(crate) const COMPARE_AGAIN: Duration = Duration::from_secs(300);
/// Most endpoints of a slice that the API server takes.
const ENDPOINTS_MAX: usize = 1_000;
/// Says which Service a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Says who writes a slice, so that nobody else does.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A family of addresses: a slice has those of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Name of the slice of a Service.
    pub(crate) fn slice_name(self, service: &str) -> String {
        match self {
            Self::V4 => format!("{service}-ipv4"),
            Self::V6 => format!("{service}-ipv6"),
        }
    }

    fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// The slices of a Service.
pub(crate) struct Slices<'a> {
    /// The Service.
    pub(crate) service: &'a Key,
    /// Labels of the slices, beside those that Kubernetes wants.
    pub(crate) labels: BTreeMap<String, String>,
    /// Names and numbers of the ports, all TCP.
    pub(crate) ports: &'a [(&'a str, u16)],
    /// Who the slices go with.
    pub(crate) owner: Option<OwnerReference>,
}

impl Slices<'_> {
    /// Makes the slices what they should be with these addresses: none for a family without any.
    ///
    /// # Errors
    /// A call failed. Whoever calls again finds what is left to do.
    pub(crate) async fn write<C: Cluster>(
        &self,
        writer: &Writer<'_, C>,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<(), Error> {
        for family in Family::ALL {
            let slice = self.slice(family, addresses);
            if slice.endpoints.is_empty() {
                self.delete_of(family, writer).await?;
                continue;
            }
            let key = self.service.sibling(&family.slice_name(&self.service.name));
            // One by one: anybody may give their label to as many others as he likes.
            let there = match writer.cluster.get::<EndpointSlice>(&key).await {
                // What cannot be read can be written.
                Err(kube::Error::SerdeError(_)) => None,
                there => there?,
            };
            writer.apply(names::ANNOTATION_APPLIED_HASH, &slice, there.as_ref()).await?;
        }
        Ok(())
    }

    /// Deletes the slices that there are now. A deletion that has its effect late takes none that are made since.
    ///
    /// # Errors
    /// A call failed. Whoever calls again finds what is left to do.
    pub(crate) async fn delete<C: Cluster>(&self, writer: &Writer<'_, C>) -> Result<(), Error> {
        for family in Family::ALL {
            self.delete_of(family, writer).await?;
        }
        Ok(())
    }

    /// Deletes the slice of a family, if there is one and it is one of these. It is asked for by its name, as somebody
    /// may have taken the labels by which slices are listed.
    async fn delete_of<C: Cluster>(&self, family: Family, writer: &Writer<'_, C>) -> Result<(), Error> {
        let name = family.slice_name(&self.service.name);
        let there = writer.cluster.get_metadata::<EndpointSlice>(&self.service.sibling(&name)).await?;
        if let Some(there) = there.filter(|there| self.is_one(there)) {
            writer.delete::<EndpointSlice>(&name, there.uid.as_deref(), PropagationPolicy::Background).await?;
        }
        Ok(())
    }

    /// Whether the slice with this metadata is one of these: it says so, or was applied by a frontend. Others of its
    /// name are of somebody else.
    fn is_one(&self, slice: &ObjectMeta) -> bool {
        let label = slice.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        let mut annotations = slice.annotations.iter();
        label.is_some_and(|service| **service == *self.service.name)
            || annotations.any(|annotations| annotations.contains_key(names::ANNOTATION_APPLIED_HASH))
    }

    /// The slice of a family with these addresses.
    fn slice(&self, family: Family, addresses: &BTreeSet<IpAddr>) -> EndpointSlice {
        let endpoint = |address: &IpAddr| Endpoint {
            addresses: vec![address.to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
            ..Endpoint::default()
        };
        let port = |(name, port): &(&str, u16)| EndpointPort {
            name: Some((*name).to_owned()),
            port: Some((*port).into()),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        };
        let mut labels = self.labels.clone();
        labels.insert(SERVICE_NAME.to_owned(), self.service.name.to_string());
        labels.insert(MANAGED_BY.to_owned(), "streams-frontend".to_owned());
        let of_family = addresses.iter().filter(|address| family.has(address));
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(family.slice_name(&self.service.name)),
                namespace: Some(self.service.namespace.to_string()),
                labels: Some(labels),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            address_type: family.address_type().to_owned(),
            endpoints: of_family.take(ENDPOINTS_MAX).map(endpoint).collect(),
            ports: Some(self.ports.iter().map(port).collect()),
        }
    }
}

/// The owner of what goes with a Service.
pub(crate) fn owned_by(service: &Service) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.metadata.name.clone()?,
        uid: service.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: None,
    })
}
