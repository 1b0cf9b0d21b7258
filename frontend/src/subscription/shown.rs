//! Exports and imports as messages. Pure, but for a look at the boards.

use super::etag;
use crate::broker::Boards;
use crate::broker::answers::Standing as Stands;
use crate::run_time::imports::in_order;
use streams_api::{Export as Exported, Import as Importing, ImportedStreams as Asked, StreamProperty};
use streams_kubernetes::Key;
use streams_proto::subscription::v1::{
    Export, Import, ImportedStreams, NamedStream, Properties, Property, Standing, Subscription,
};

/// Names of others that an entry has at most.
const OTHERS_MAX: usize = 100;

/// An export, as it is and stands.
pub(super) fn export(object: &Exported, boards: &Boards) -> Export {
    let spec = &object.spec;
    let (standing, problem) = standing(boards.export(&Key::of(object)));
    let (importers, count) = boards.importers(object, OTHERS_MAX);
    let in_force = object.properties();
    Export {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        job: spec.job_name.clone(),
        job_id: spec.job_id,
        pe_id: spec.pe_id,
        port_id: spec.port_id,
        application: spec.application_name.clone(),
        application_scope: spec.application_scope.clone(),
        operator: spec.stream.export_oper_name.clone(),
        stream: spec.stream.name.clone(),
        allows_filter: spec.stream.allow_filter,
        application_properties: in_force.map(|_| properties(&spec.stream.properties)),
        properties: in_force.map(properties),
        changed_at_run_time: object.status.as_ref().is_some_and(|status| status.run_time.is_some()),
        standing: standing.into(),
        problem,
        importers,
        importer_count: u32::try_from(count).unwrap_or(u32::MAX),
        etag: etag::of_export(object),
    }
}

/// An import, as it is and stands.
pub(super) fn import(object: &Importing, boards: &Boards) -> Import {
    let spec = &object.spec;
    let (standing, problem) = standing(boards.import(&Key::of(object)));
    let (exporters, count) = boards.exporters(object, OTHERS_MAX);
    Import {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        job: spec.job_name.clone(),
        job_id: spec.job_id,
        pe_id: spec.pe_id,
        port_id: spec.port_id,
        application: spec.application_name.clone(),
        application_scope: spec.application_scope.clone(),
        application_streams: Some(streams(&spec.streams)),
        streams: Some(streams(object.streams())),
        changed_at_run_time: object.status.as_ref().is_some_and(|status| status.run_time.is_some()),
        standing: standing.into(),
        problem,
        exporters,
        exporter_count: u32::try_from(count).unwrap_or(u32::MAX),
        etag: etag::of_import(object),
    }
}

fn properties(listed: &[StreamProperty]) -> Properties {
    let property = |StreamProperty { name, property_type, values }: &StreamProperty| Property {
        name: name.clone(),
        r#type: property_type.clone(),
        values: values.clone(),
    };
    Properties { properties: listed.iter().map(property).collect() }
}

fn streams(asked: &Asked) -> ImportedStreams {
    let named = in_order(asked).into_iter().map(|named| NamedStream {
        application: named.application_name.clone(),
        application_scope: named.application_scope.clone(),
        stream: named.stream_name.clone(),
        operator: named.import_oper_name.clone(),
    });
    let subscription = asked.property_based_import.as_ref().map(|import| Subscription {
        expression: import.subscription.clone(),
        application_scope: import.application_scope.clone(),
        operator: import.import_oper_name.clone(),
    });
    ImportedStreams { named_streams: named.collect(), subscription, filter: asked.filter.clone().unwrap_or_default() }
}

fn standing(stands: Stands) -> (Standing, String) {
    match stands {
        Stands::Connected => (Standing::Connected, String::new()),
        Stands::Alone => (Standing::Alone, String::new()),
        Stands::Unknown => (Standing::NotOfJob, String::new()),
        Stands::Malformed(problem) => (Standing::Malformed, problem.to_string()),
        Stands::Limited { is_connected, limit } => {
            let standing = if is_connected { Standing::Connected } else { Standing::Alone };
            (standing, limit.to_string())
        }
    }
}
