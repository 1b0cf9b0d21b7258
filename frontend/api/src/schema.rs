//! Schemas of foreign types, bounded where the types themselves are not.

use schemars::{Schema, SchemaGenerator, json_schema};

/// `^` sign, number, suffix `$` of a quantity that is not negative.
const QUANTITY: &str =
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

fn quantities(description: &str) -> Schema {
    json_schema!({
        "description": description,
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "maxLength": 64
        }
    })
}

/// Schema of `ResourceRequirements` without `claims`.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "limits": quantities("The most of each resource that may be used."),
            "requests": quantities("What is set aside of each resource.")
        }
    })
}

/// Schema of a list of conditions, a map by `type`.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "What is said to be so or not, in CamelCase.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                },
                "status": { "description": "Whether it is so.", "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": {
                    "description": "`.metadata.generation` of the object that this was found out about.",
                    "type": "integer", "format": "int64", "minimum": 0
                },
                "lastTransitionTime": { "description": "When `status` changed last.", "type": "string", "format": "date-time" },
                "reason": {
                    "description": "Why, as one word in CamelCase.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "message": { "description": "Why, for people.", "type": "string", "maxLength": 32768 }
            }
        }
    })
}

/// Schema of environment variables by name.
pub(super) fn environment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 1024,
        "additionalProperties": { "type": "string", "maxLength": 32768 }
    })
}
