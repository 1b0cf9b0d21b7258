//! Schemas of foreign types, bounded where the types themselves are not, and rules for values that Kubernetes has a
//! grammar for (rule job-38).
//!
//! Each rule stands at the field that it is about: the API server then lets a value pass that was stored before the
//! rule was there, as long as nobody changes it. All are expressions of CEL, whose regular expressions take linear
//! time; a `pattern` could not say in words what is wrong.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The name of an object, such as a Secret: a subdomain as of RFC 1123.
pub(super) const OBJECT_NAME: &str =
    "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";
pub(super) const OBJECT_NAME_SAYS: &str = "must be the name of an object: lower-case letters, digits, '-' and '.', with a letter or digit at each end of each part";

/// A reference to an image, in the grammar of the OCI distribution: `[host[:port]/]path[:tag][@digest]`.
pub(super) const IMAGE: &str = "self.matches('^\
     (([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|[[][a-fA-F0-9:]+[]])(:[0-9]+)?/)?\
     [a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*\
     (:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?\
     (@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')";
pub(super) const IMAGE_SAYS: &str = "must be a reference to an image, such as registry.example.com/team/runtime:6.1";

/// A path inside of something.
pub(super) const INNER_PATH: &str = "!self.startsWith('/') && !self.split('/').exists(part, part == '..')";
pub(super) const INNER_PATH_SAYS: &str = "must be a path inside of the volume: relative and without '..'";

/// A directory of a node.
pub(super) const HOST_PATH: &str = "!self.split('/').exists(part, part == '..')";
pub(super) const HOST_PATH_SAYS: &str = "must be a path without '..'";

/// Where a volume is mounted.
pub(super) const MOUNT_PATH: &str = "!self.matches(':|(^|/)[.][.](/|$)')";
pub(super) const MOUNT_PATH_SAYS: &str = "must be a path without ':' and '..'";

/// A quantity that is not negative and below 2^63; what is greater, the API server would cut.
const QUANTITY: &str = "isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && \
     quantity(string(self)).isLessThan(quantity('9223372036854775807'))";

/// Resources that a container can have: those of Kubernetes, and others with the domain of whoever provides them.
const RESOURCE_NAMES: &str = "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || \
     name.matches('^hugepages-[0-9]+[KMGTPE]i$') || \
     name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))";

/// What is no quantity is told where it stands.
const REQUESTS_WITHIN_LIMITS: &str = "!has(self.limits) || !has(self.requests) || self.requests.all(name, \
     !(name in self.limits) || !isQuantity(string(self.limits[name])) || !isQuantity(string(self.requests[name])) || \
     !quantity(string(self.requests[name])).isGreaterThan(quantity(string(self.limits[name]))))";

/// Devices and huge pages only come whole. A value is compared as a floating-point number, because the API server takes
/// `1000m` for no integer; it is exact as far as anybody has as many.
const WHOLE: &str = "self.all(name, !(name.contains('/') || name.startsWith('hugepages-')) || \
     !isQuantity(string(self[name])) || quantity(string(self[name])).asApproximateFloat() >= 9.0e18 || \
     double(int(quantity(string(self[name])).asApproximateFloat())) == quantity(string(self[name])).asApproximateFloat())";

/// Huge pages come in pages of the size that is in the name.
const WHOLE_PAGES: &str = "self.all(name, !name.startsWith('hugepages-') || !isQuantity(string(self[name])) || \
     !isQuantity(name.substring(10)) || quantity(string(self[name])).asApproximateFloat() >= 9.0e18 || \
     (quantity(name.substring(10)).asApproximateFloat() >= 1.0 && \
     quantity(name.substring(10)).asApproximateFloat() < 9.0e18 && \
     int(quantity(string(self[name])).asApproximateFloat()) % int(quantity(name.substring(10)).asApproximateFloat()) == 0))";

/// Of what cannot be shared with others, everything that is requested is the limit.
const NOT_OVERCOMMITTED: &str = "!has(self.requests) || self.requests.all(name, \
     !(name.contains('/') || name.startsWith('hugepages-')) || (has(self.limits) && name in self.limits && \
     (!isQuantity(string(self.limits[name])) || !isQuantity(string(self.requests[name])) || \
     quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) == 0)))";

const PAGES_WITH_MEMORY: &str = "!((has(self.limits) && self.limits.exists(name, name.startsWith('hugepages-'))) || \
     (has(self.requests) && self.requests.exists(name, name.startsWith('hugepages-')))) || \
     (has(self.limits) && ('cpu' in self.limits || 'memory' in self.limits)) || \
     (has(self.requests) && ('cpu' in self.requests || 'memory' in self.requests))";

fn quantities(description: &str) -> Schema {
    json_schema!({
        "description": description,
        "type": "object",
        "maxProperties": 32,
        "x-kubernetes-validations": [
            {
                "rule": RESOURCE_NAMES,
                "message": "must be names of resources, such as cpu, memory or example.com/device"
            },
            { "rule": WHOLE, "message": "devices and huge pages must be whole numbers" },
            { "rule": WHOLE_PAGES, "message": "huge pages must be a multiple of the size in their name" }
        ],
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "maxLength": 64,
            "x-kubernetes-validations": [{
                "rule": QUANTITY,
                "message": "must be a quantity that is not negative, such as 500m or 1.5Gi"
            }]
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
        },
        "x-kubernetes-validations": [
            { "rule": REQUESTS_WITHIN_LIMITS, "message": "requests must not be greater than limits" },
            {
                "rule": NOT_OVERCOMMITTED,
                "message": "requests of devices and huge pages need limits that are equal to them"
            },
            { "rule": PAGES_WITH_MEMORY, "message": "huge pages need cpu or memory beside them" }
        ]
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

/// Schema of an object of any form.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Schema of environment variables by name.
pub(super) fn environment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 1024,
        "additionalProperties": { "type": "string", "maxLength": 32768 }
    })
}
