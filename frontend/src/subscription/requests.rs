//! Makes of a request what is to be changed, and names the field of what is wrong (rule import-9). Pure.
//!
//! Bounds are those of the custom resources, so that what is too much is told with its place.

use super::errors;
use crate::broker::facts;
use crate::run_time::exports::ExportChange;
use crate::run_time::imports::{DEFAULT_SCOPE, ImportChange};
use crate::run_time::{ENTRIES_MAX, Problem};
use spl_expression::is_no_filter;
use std::collections::BTreeSet;
use streams_api::{ImportedStreams as Asked, NameBasedImport, PropertyBasedImport, StreamProperty};
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    EditImportedStreams, EditProperties, ImportedStreams, NamedStream, Properties, Property, Subscription,
};
use tonic::Status;

/// Characters of a name.
const NAME_MAX: usize = 1_024;
/// Characters of a type.
const TYPE_MAX: usize = 64;
/// Characters of a value, a subscription, a filter.
const TEXT_MAX: usize = 65_536;

/// What is to become of the properties of an export.
///
/// # Errors
/// The request says nothing, or too much, or names a property twice.
pub(super) fn of_export(change: Option<&OfExport>) -> Result<ExportChange, Status> {
    match change {
        None => Err(nothing()),
        Some(OfExport::Reset(_)) => Ok(ExportChange::Reset),
        Some(OfExport::Set(Properties { properties })) => Ok(ExportChange::Set(read("set.properties", properties)?)),
        Some(OfExport::Edit(edit)) => {
            let EditProperties { add, replace, remove } = edit;
            if add.is_empty() && replace.is_empty() && remove.is_empty() {
                return Err(errors::invalid_request("edit", "a property is needed"));
            }
            at_most("edit.remove", remove.len(), ENTRIES_MAX)?;
            let (replaced, added) = (read("edit.replace", replace)?, read("edit.add", add)?);
            let mut seen = BTreeSet::new();
            if let Some((field, name)) = named(edit).find(|(_, name)| !seen.insert(*name)) {
                return Err(errors::invalid_request(&field, &format!("property {name} is named twice")));
            }
            Ok(ExportChange::Edit { remove: remove.clone(), replace: replaced, add: added })
        }
    }
}

/// The field of a request that a problem is about, or the whole change: the last that names the property, since of two
/// of a name the second one is too much.
pub(super) fn field_of_export(change: Option<&OfExport>, problem: Option<&Problem>) -> String {
    let name = match problem {
        Some(Problem::Fact(facts::Problem::Property { name, .. } | facts::Problem::Twice(name))) => Some(name),
        _ => None,
    };
    let (whole, part) = match change {
        None => ("change", None),
        Some(OfExport::Reset(_)) => ("reset", None),
        Some(OfExport::Set(Properties { properties })) => {
            let found = properties.iter().rposition(|property| Some(&property.name) == name);
            ("set", found.map(|at| format!("set.properties[{at}]")))
        }
        Some(OfExport::Edit(edit)) => {
            let found = named(edit).filter(|(_, named)| name.is_some_and(|name| name == named)).last();
            ("edit", found.map(|(field, _)| field))
        }
    };
    part.unwrap_or_else(|| whole.to_owned())
}

/// The properties that an edit names, each with its field.
fn named(edit: &EditProperties) -> impl Iterator<Item = (String, &str)> {
    let removed = edit.remove.iter().enumerate().map(|(at, name)| (format!("edit.remove[{at}]"), &**name));
    let replaced = edit.replace.iter().enumerate().map(|(at, one)| (format!("edit.replace[{at}]"), &*one.name));
    let added = edit.add.iter().enumerate().map(|(at, one)| (format!("edit.add[{at}]"), &*one.name));
    removed.chain(replaced).chain(added)
}

/// What is to become of what an input port asks for, which asks for this now.
///
/// # Errors
/// The request says nothing, or too much.
pub(super) fn of_import(change: Option<&OfImport>, before: &Asked) -> Result<ImportChange, Status> {
    match change {
        None => Err(nothing()),
        Some(OfImport::Reset(_)) => Ok(ImportChange::Reset),
        Some(OfImport::Set(ImportedStreams { named_streams, subscription, filter })) => {
            at_most("set.named_streams", named_streams.len(), ENTRIES_MAX)?;
            let named = named_streams.iter().enumerate().map(|(at, named)| Ok((at.to_string(), stream(at, named)?)));
            let subscription = subscription.as_ref().map(|asked| by_properties("set.subscription", asked, before));
            Ok(ImportChange::Set(Asked {
                name_based_imports: named.collect::<Result<_, Status>>()?,
                property_based_import: subscription.transpose()?,
                filter: wanted("set.filter", filter)?,
            }))
        }
        Some(OfImport::Edit(EditImportedStreams { subscription, filter })) => {
            if subscription.is_none() && filter.is_none() {
                return Err(errors::invalid_request("edit", "a subscription or a filter is needed"));
            }
            let subscription = subscription.as_ref().map(|asked| by_properties("edit.subscription", asked, before));
            Ok(ImportChange::Edit {
                subscription: subscription.transpose()?,
                filter: filter.as_ref().map(|filter| wanted("edit.filter", filter)).transpose()?,
            })
        }
    }
}

/// The field of a request that a problem is about, or the whole change.
pub(super) fn field_of_import(change: Option<&OfImport>, problem: Option<&Problem>) -> String {
    let (whole, has_subscription) = match change {
        None => ("change", false),
        Some(OfImport::Reset(_)) => ("reset", false),
        Some(OfImport::Set(_)) => ("set", true),
        // What was there before may be no expression, and stays.
        Some(OfImport::Edit(EditImportedStreams { subscription, .. })) => ("edit", subscription.is_some()),
    };
    match problem {
        Some(Problem::Fact(facts::Problem::Subscription(_))) if has_subscription => {
            format!("{whole}.subscription.expression")
        }
        Some(Problem::Fact(facts::Problem::Filter(_)) | Problem::FilterForbidden(_) | Problem::FilterUndecided) => {
            format!("{whole}.filter")
        }
        _ => whole.to_owned(),
    }
}

fn nothing() -> Status {
    errors::invalid_request("change", "one of set, edit and reset is needed")
}

fn read(field: &str, listed: &[Property]) -> Result<Vec<StreamProperty>, Status> {
    at_most(field, listed.len(), ENTRIES_MAX)?;
    let property = |(at, Property { name, r#type, values }): (usize, &Property)| {
        let field = |part: &str| format!("{field}[{at}].{part}");
        if name.is_empty() {
            return Err(errors::invalid_request(&field("name"), "a name is needed"));
        }
        short(&field("name"), name, NAME_MAX)?;
        short(&field("type"), r#type, TYPE_MAX)?;
        at_most(&field("values"), values.len(), ENTRIES_MAX)?;
        for (value, text) in values.iter().enumerate() {
            short(&field(&format!("values[{value}]")), text, TEXT_MAX)?;
        }
        Ok(StreamProperty { name: name.clone(), property_type: r#type.clone(), values: values.clone() })
    };
    listed.iter().enumerate().map(property).collect()
}

fn stream(at: usize, named: &NamedStream) -> Result<NameBasedImport, Status> {
    let NamedStream { application, application_scope, stream, operator } = named;
    let parts = [
        ("application", application),
        ("application_scope", application_scope),
        ("stream", stream),
        ("operator", operator),
    ];
    for (part, text) in parts {
        short(&format!("set.named_streams[{at}].{part}"), text, NAME_MAX)?;
    }
    if stream.is_empty() {
        return Err(errors::invalid_request(&format!("set.named_streams[{at}].stream"), "a name is needed"));
    }
    Ok(NameBasedImport {
        application_name: application.clone(),
        application_scope: or(application_scope, || DEFAULT_SCOPE.to_owned()),
        stream_name: stream.clone(),
        import_oper_name: operator.clone(),
    })
}

/// What the request does not say of the subscription is as before.
fn by_properties(field: &str, asked: &Subscription, before: &Asked) -> Result<PropertyBasedImport, Status> {
    let Subscription { expression, application_scope, operator } = asked;
    for (part, text, most) in [
        ("expression", expression, TEXT_MAX),
        ("application_scope", application_scope, NAME_MAX),
        ("operator", operator, NAME_MAX),
    ] {
        short(&format!("{field}.{part}"), text, most)?;
    }
    let none = || PropertyBasedImport { application_scope: DEFAULT_SCOPE.to_owned(), ..PropertyBasedImport::default() };
    let before = before.property_based_import.clone().unwrap_or_else(none);
    Ok(PropertyBasedImport {
        subscription: expression.clone(),
        application_scope: or(application_scope, || before.application_scope),
        import_oper_name: or(operator, || before.import_oper_name),
        index: before.index,
    })
}

/// A filter; an empty one is none, and so is one of blanks.
fn wanted(field: &str, filter: &str) -> Result<Option<String>, Status> {
    short(field, filter, TEXT_MAX)?;
    Ok(Some(filter.to_owned()).filter(|filter| !is_no_filter(filter)))
}

fn or(text: &str, otherwise: impl FnOnce() -> String) -> String {
    if text.is_empty() { otherwise() } else { text.to_owned() }
}

fn at_most(field: &str, count: usize, most: usize) -> Result<(), Status> {
    if count > most {
        return Err(errors::invalid_request(field, &format!("{count} entries are more than {most}")));
    }
    Ok(())
}

fn short(field: &str, text: &str, most: usize) -> Result<(), Status> {
    if text.len() > most && text.chars().count() > most {
        return Err(errors::invalid_request(field, &format!("it has more than {most} characters")));
    }
    Ok(())
}
