//! The contract keeps the rules of `buf lint` (category STANDARD), is documented, and never changes but by additions.
//!
//! `contract.txt` beside this file lists everything that callers can rely on. What is in it must stay; what is new is
//! added to it by `STREAMS_UPDATE_CONTRACT=1 cargo test --package streams-proto`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::source_code_info::Location;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names that break a rule and were published before it was checked: they stay.
const EXCEPTIONS: [&str; 1] = ["streams.elasticity.v1.ElasticityService.GetRegion: RPC_RESPONSE_STANDARD_NAME"];

fn files() -> Vec<FileDescriptorProto> {
    FileDescriptorSet::decode(streams_proto::DESCRIPTOR_SET).unwrap().file
}

fn of_ours(file: &FileDescriptorProto) -> bool {
    file.package().starts_with("streams.")
}

/// Everything that a file declares, by full name.
#[derive(Default)]
struct Declared {
    messages: Vec<(String, DescriptorProto)>,
    enums: Vec<(String, EnumDescriptorProto)>,
}

impl Declared {
    fn of(file: &FileDescriptorProto) -> Self {
        let mut declared = Self::default();
        declared.add(file.package(), &file.message_type, &file.enum_type);
        declared
    }

    fn add(&mut self, scope: &str, messages: &[DescriptorProto], enums: &[EnumDescriptorProto]) {
        self.enums.extend(enums.iter().map(|one| (format!("{scope}.{}", one.name()), one.clone())));
        for message in messages {
            let name = format!("{scope}.{}", message.name());
            self.add(&name, &message.nested_type, &message.enum_type);
            self.messages.push((name, message.clone()));
        }
    }
}

fn is_pascal(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_lower_snake(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_part)
}

/// `WaitFor` as `WAIT_FOR`.
fn upper_snake(pascal: &str) -> String {
    let mut snake = String::new();
    for (position, c) in pascal.chars().enumerate() {
        if c.is_ascii_uppercase() && position > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_uppercase());
    }
    snake
}

/// What breaks a rule of `buf lint`, as `name: RULE`.
fn violations(file: &FileDescriptorProto) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, name: &str, rule: &str| {
        if !holds {
            found.push(format!("{name}: {rule}"));
        }
    };
    let package = file.package();
    let directory = Path::new(file.name()).parent().unwrap().to_str().unwrap().replace('/', ".");
    check(directory == package, package, "PACKAGE_DIRECTORY_MATCH");
    check(package.split('.').all(is_lower_snake), package, "PACKAGE_LOWER_SNAKE_CASE");
    let version = package.rsplit('.').next().unwrap();
    check(version.strip_prefix('v').is_some_and(|v| v.parse::<u32>().is_ok()), package, "PACKAGE_VERSION_SUFFIX");
    let stem = Path::new(file.name()).file_stem().unwrap().to_str().unwrap();
    check(is_lower_snake(stem), file.name(), "FILE_LOWER_SNAKE_CASE");
    check(file.syntax() == "proto3", file.name(), "SYNTAX_SPECIFIED");
    check(file.options.as_ref().is_some_and(|o| o.go_package.is_some()), file.name(), "PACKAGE_SAME_GO_PACKAGE");
    check(file.public_dependency.is_empty() && file.weak_dependency.is_empty(), file.name(), "IMPORT_NO_PUBLIC");
    let declared = Declared::of(file);
    for (name, message) in &declared.messages {
        let is_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
        check(is_entry || is_pascal(message.name()), name, "MESSAGE_PASCAL_CASE");
        for field in &message.field {
            let name = format!("{name}.{}", field.name());
            check(is_lower_snake(field.name()), &name, "FIELD_LOWER_SNAKE_CASE");
            check(field.label() != Label::Required, &name, "FIELD_NOT_REQUIRED");
        }
        for one in &message.oneof_decl {
            check(
                is_lower_snake(one.name().trim_start_matches('_')),
                &format!("{name}.{}", one.name()),
                "ONEOF_LOWER_SNAKE_CASE",
            );
        }
    }
    for (name, one) in &declared.enums {
        check(is_pascal(one.name()), name, "ENUM_PASCAL_CASE");
        let prefix = upper_snake(one.name());
        for value in &one.value {
            let name = format!("{name}.{}", value.name());
            check(value.name() == value.name().to_uppercase(), &name, "ENUM_VALUE_UPPER_SNAKE_CASE");
            check(value.name().starts_with(&format!("{prefix}_")), &name, "ENUM_VALUE_PREFIX");
            check(value.number() != 0 || value.name().ends_with("_UNSPECIFIED"), &name, "ENUM_ZERO_VALUE_SUFFIX");
        }
        check(one.value.first().is_some_and(|first| first.number() == 0), name, "ENUM_FIRST_VALUE_ZERO");
        check(!one.options.as_ref().is_some_and(|options| options.allow_alias()), name, "ENUM_NO_ALLOW_ALIAS");
    }
    let mut types = BTreeMap::<_, usize>::new();
    for service in &file.service {
        let name = format!("{package}.{}", service.name());
        check(is_pascal(service.name()), &name, "SERVICE_PASCAL_CASE");
        check(service.name().ends_with("Service"), &name, "SERVICE_SUFFIX");
        for method in &service.method {
            let name = format!("{name}.{}", method.name());
            check(is_pascal(method.name()), &name, "RPC_PASCAL_CASE");
            let standard = |kind: &str| {
                [
                    format!(".{package}.{}{kind}", method.name()),
                    format!(".{package}.{}{}{kind}", service.name(), method.name()),
                ]
            };
            check(standard("Request").contains(&method.input_type().to_owned()), &name, "RPC_REQUEST_STANDARD_NAME");
            check(standard("Response").contains(&method.output_type().to_owned()), &name, "RPC_RESPONSE_STANDARD_NAME");
            for of_call in [method.input_type(), method.output_type()] {
                *types.entry(of_call.to_owned()).or_default() += 1;
            }
        }
    }
    for (of_calls, uses) in &types {
        check(*uses == 1, of_calls, "RPC_REQUEST_RESPONSE_UNIQUE");
    }
    found
}

#[test]
fn the_rules_of_buf_lint_are_kept() {
    let ours: Vec<_> = files().into_iter().filter(of_ours).collect();
    assert_eq!(ours.len(), 3);
    let found: BTreeSet<_> = ours.iter().flat_map(violations).collect();
    assert_eq!(found, EXCEPTIONS.map(str::to_owned).into(), "left: what breaks a rule; right: what may");
}

#[test]
fn each_rule_finds_what_breaks_it() {
    use prost_types::{EnumValueDescriptorProto, FieldDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto};
    let field = FieldDescriptorProto { name: Some("someField".to_owned()), ..FieldDescriptorProto::default() };
    let message = DescriptorProto { name: Some("a_b".to_owned()), field: vec![field], ..DescriptorProto::default() };
    let value = EnumValueDescriptorProto {
        name: Some("Zero".to_owned()),
        number: Some(0),
        ..EnumValueDescriptorProto::default()
    };
    let one =
        EnumDescriptorProto { name: Some("state".to_owned()), value: vec![value], ..EnumDescriptorProto::default() };
    let method = MethodDescriptorProto {
        name: Some("get".to_owned()),
        input_type: Some(".p.a_b".to_owned()),
        output_type: Some(".p.a_b".to_owned()),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("things".to_owned()),
        method: vec![method],
        ..ServiceDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("other/BadName.proto".to_owned()),
        package: Some("p".to_owned()),
        message_type: vec![message],
        enum_type: vec![one],
        service: vec![service],
        ..FileDescriptorProto::default()
    };
    let rules: BTreeSet<_> =
        violations(&file).iter().map(|found| found.rsplit(' ').next().unwrap().to_owned()).collect();
    let expected = [
        "ENUM_PASCAL_CASE",
        "ENUM_VALUE_PREFIX",
        "ENUM_VALUE_UPPER_SNAKE_CASE",
        "ENUM_ZERO_VALUE_SUFFIX",
        "FIELD_LOWER_SNAKE_CASE",
        "FILE_LOWER_SNAKE_CASE",
        "MESSAGE_PASCAL_CASE",
        "PACKAGE_DIRECTORY_MATCH",
        "PACKAGE_SAME_GO_PACKAGE",
        "PACKAGE_VERSION_SUFFIX",
        "RPC_PASCAL_CASE",
        "RPC_REQUEST_RESPONSE_UNIQUE",
        "RPC_REQUEST_STANDARD_NAME",
        "RPC_RESPONSE_STANDARD_NAME",
        "SERVICE_PASCAL_CASE",
        "SERVICE_SUFFIX",
        "SYNTAX_SPECIFIED",
    ];
    assert_eq!(rules, expected.map(str::to_owned).into());
}

/// Paths of the declarations of a file that have comments.
fn documented(file: &FileDescriptorProto) -> BTreeSet<Vec<i32>> {
    let has_comment =
        |location: &&Location| location.leading_comments.is_some() || location.trailing_comments.is_some();
    let all = file.source_code_info.as_ref().unwrap().location.iter();
    all.filter(has_comment).map(|location| location.path.clone()).collect()
}

#[test]
fn reflection_tells_what_every_call_does() {
    // Numbers of the fields `service` of a file and `method` of a service in `descriptor.proto`.
    const SERVICE: i32 = 6;
    const METHOD: i32 = 2;
    for file in files().iter().filter(|file| of_ours(file)) {
        let documented = documented(file);
        for (s, service) in (0..).zip(&file.service) {
            for (m, method) in (0..).zip(&service.method) {
                let path = vec![SERVICE, s, METHOD, m];
                assert!(documented.contains(&path), "{}.{} has no comment", service.name(), method.name());
            }
        }
    }
}

/// Everything that callers rely on, a line each.
fn contract() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files().iter().filter(|file| of_ours(file)) {
        let package = file.package();
        let declared = Declared::of(file);
        for (name, message) in &declared.messages {
            lines.insert(format!("message {name}"));
            for field in &message.field {
                let kind = field.r#type();
                let type_name =
                    if matches!(kind, Type::Message | Type::Enum) { field.type_name() } else { kind.as_str_name() };
                let label = match (field.label(), field.proto3_optional(), field.oneof_index) {
                    (Label::Repeated, ..) => "repeated".to_owned(),
                    (_, true, _) => "optional".to_owned(),
                    (_, false, Some(one)) => {
                        format!("oneof {}", message.oneof_decl[usize::try_from(one).unwrap()].name())
                    }
                    _ => "single".to_owned(),
                };
                lines.insert(format!("field {name}.{} = {} {label} {type_name}", field.name(), field.number()));
            }
        }
        for (name, one) in &declared.enums {
            for value in &one.value {
                lines.insert(format!("value {name}.{} = {}", value.name(), value.number()));
            }
        }
        for service in &file.service {
            for method in &service.method {
                let stream = |is: bool| if is { "stream " } else { "" };
                lines.insert(format!(
                    "call {package}.{}.{}({}{}) returns ({}{})",
                    service.name(),
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                ));
            }
        }
    }
    lines
}

#[test]
fn what_was_published_stays() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.txt");
    let published: BTreeSet<_> =
        std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    let now = contract();
    let gone: Vec<_> = published.difference(&now).collect();
    assert!(gone.is_empty(), "callers rely on this; it was removed or changed: {gone:#?}");
    if std::env::var_os("STREAMS_UPDATE_CONTRACT").is_some() {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let new: Vec<_> = now.difference(&published).collect();
    assert!(new.is_empty(), "new; run with STREAMS_UPDATE_CONTRACT=1, and it is promised from then on: {new:#?}");
}
