//! Reads whole documents and compares applications and problems.

use super::parse;
use crate::budget::Budget;
use crate::error::{Error, Stage};
use crate::logical::{
    Application, Checkpointing, Composite, DefinitionThreading, ImportedStreams, OperatorKind, PortKind, Primitive,
    SplitterKind, TraceLevel, Type, Width,
};
use proptest::prelude::*;
use std::sync::Arc;

/// A document with one of everything of the current dialect.
const CURRENT: &str = include_str!("../../../tests/applications/everything.adl");

/// The same in the older dialect, smaller.
const OLDER: &str = include_str!("../../../tests/applications/older-dialect.adl");

fn read(document: &str) -> Application {
    parse(document.as_bytes(), &Budget::default()).unwrap()
}

fn problems(document: &str) -> Vec<String> {
    match parse(document.as_bytes(), &Budget::default()) {
        Err(Error::Rejected(problems)) => {
            assert!(problems.iter().all(|problem| problem.stage == Stage::LogicalModel));
            problems.into_iter().map(|problem| problem.to_string()).collect()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => Vec::new(),
    }
}

fn primitive<'a>(application: &'a Application, name: &str) -> &'a Primitive {
    let operator = application.operators.values().find(|operator| operator.logical_name == name).unwrap();
    match &operator.kind {
        OperatorKind::Primitive(primitive) => primitive,
        _ => panic!("{name} is no primitive"),
    }
}

#[test]
fn everything_of_the_current_dialect_is_read() {
    let application = read(CURRENT);
    assert_eq!((application.name.as_str(), application.version.as_deref()), ("ns::Main", Some("1.0 a")));
    let pools: Vec<_> = application.host_pools.iter().map(|p| (p.index, p.exclusive, p.size, p.hosts.len())).collect();
    assert_eq!(pools, [(0, false, None, 0), (1, true, Some(2), 2)]);
    let attributes = application.tuple_types[0].attributes.as_ref().unwrap();
    let scalar = |text: &str| Box::new(Type::Scalar(text.to_owned()));
    assert_eq!(attributes[0].r#type, *scalar("rstring[64]"));
    assert_eq!(attributes[1].r#type, Type::List(scalar("int32"), Some(5)));
    assert_eq!(attributes[2].r#type, Type::Map(scalar("rstring"), Box::new(Type::Set(scalar("int8"), None)), None));
    assert!(matches!(&attributes[3].r#type, Type::Optional(inner) if matches!(**inner, Type::Tuple(_))));
    assert_eq!(application.definitions[0].custom_metrics, [1, 0]);
    assert_eq!(application.definitions[0].capabilities, ["cap"]);
    assert_eq!(application.toolkits.iter().map(|t| t.index).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(application.custom_metrics[0].description, " two  words ");
    let region = &application.regions[0];
    assert_eq!((&region.width, region.replicate_tags.as_slice()), (&Width::SubmissionValue(3), &["t".to_owned()][..]));
    assert_eq!((region.splitters[0].kind, region.splitters[0].attributes.len()), (SplitterKind::Hash, 2));
    assert!(application.submission_values[0].list && !application.submission_values[0].required);

    let names: Vec<&str> = application.operators.values().map(|operator| operator.logical_name.as_str()).collect();
    assert_eq!(names, ["ns::Main", "C", "C.Snk", "Exp", "Src", "Imp"]);
    let OperatorKind::Composite(main) = &application.operators[application.main].kind else { panic!() };
    let order: Vec<u64> = main.primitives.iter().map(|id| application.operators[*id].index).collect();
    assert_eq!(order, [3, 0, 2], "document order across the kinds");
    let model =
        |annotation: &Option<crate::logical::Annotation>| annotation.as_ref().map(|a| a.values[0].1.literal.clone());
    let DefinitionThreading::Model(of_definition) = main.definition_threading.clone() else { panic!() };
    assert_eq!((model(&main.threading), model(&Some((*of_definition).clone()))), (None, Some("dynamic".to_owned())));
    let composite = &application.operators[main.composites[0]];
    let OperatorKind::Composite(composite) = &composite.kind else { panic!() };
    assert_eq!(model(&composite.threading).as_deref(), Some("dedicated"), "of a primitive in it");

    let sink = primitive(&application, "C.Snk");
    assert!(sink.restartable && !sink.relocatable && sink.partition.isolation && !sink.resources.isolation);
    assert_eq!((&*sink.wrapper, sink.trace_level), ("gdb", TraceLevel::Debug));
    assert_eq!(
        (sink.checkpointing.as_ref(), sink.jvm_arguments.as_ref()),
        (Some(&Checkpointing::Periodic(Some(2.5))), Some(&Vec::new()))
    );
    assert_eq!(sink.runtime_constants[1].1.submission_value, Some(3));
    assert_eq!(sink.environment, [("A".to_owned(), "1".to_owned())]);
    let port = &sink.inputs[0];
    assert_eq!(
        (port.control, port.threaded.as_ref().unwrap().queue_size, port.port.encoding.as_str()),
        (true, Some(7), "NBO")
    );
    assert_eq!(port.port.connections[0].kind, PortKind::Input);
    let entry = sink.consistent.as_ref().unwrap();
    assert_eq!((entry.region, entry.is_start, entry.is_end, entry.autonomous_inputs.len()), (0, false, true, 2));
    assert_eq!(entry.values[0].0, "isTriggerOperator");
    assert_eq!(primitive(&application, "Src").trace_level, TraceLevel::Error, "absent tracing");
    assert!(primitive(&application, "Src").outputs[0].viewable);

    for operator in application.operators.values() {
        match &operator.kind {
            OperatorKind::Import(import) => {
                let ImportedStreams::ByProperties { subscription, index, .. } = &import.streams else { panic!() };
                assert_eq!((subscription.as_str(), *index, import.filter.as_deref()), ("a && b", 0, Some("x == 1")));
            }
            OperatorKind::Export(export) => {
                assert_eq!(
                    (export.allow_filter, export.drop_connection, export.stream_name.as_deref()),
                    (false, true, Some("s"))
                );
                assert_eq!(export.properties.as_ref().unwrap()[0].values, ["1", "2"]);
            }
            _ => {}
        }
    }
}

#[test]
fn the_older_dialect_is_merged_from_its_two_parts() {
    let application = read(OLDER);
    assert_eq!((application.product_version.as_str(), application.avoid_runtime_yield.as_str()), ("4.1.0.0", "auto"));
    assert_eq!(
        (application.definitions[0].toolkit, application.definitions[0].runtime),
        (Some(4), crate::logical::Runtime::CPlusPlus)
    );
    let (source, sink) = (primitive(&application, "S"), primitive(&application, "T"));
    assert!(!source.restartable && sink.restartable && sink.relocatable);
    assert_eq!(source.partition.co_locations, ["pe7"]);
    assert_eq!((&*source.shared_object, source.class.as_str()), ("bin/pe.so", "S"));
    assert_eq!((source.outputs[0].port.encoding.as_str(), sink.inputs[0].port.encoding.as_str()), ("NBO", "BE"));
    assert_eq!((source.outputs[0].stream_name.as_str(), source.outputs[0].viewable), ("S", false));
    assert!(sink.inputs[0].control && !sink.single_threaded_on_outputs);
    assert_eq!(sink.checkpointing, Some(Checkpointing::OperatorDriven));
    let OperatorKind::Composite(main) = &application.operators[application.main].kind else { panic!() };
    assert!(main.threading.is_none(), "threading annotations set no model");
    let annotations: usize = application.operators.values().map(|operator| operator.annotations.len()).sum();
    assert_eq!(annotations, 2, "but they are kept");
    let streams: Vec<&ImportedStreams> = application
        .operators
        .values()
        .filter_map(|operator| match &operator.kind {
            OperatorKind::Import(import) => Some(&import.streams),
            _ => None,
        })
        .collect();
    let ImportedStreams::ByName(names) = streams[0] else { panic!() };
    assert_eq!(names.iter().map(|name| name.stream_name.as_str()).collect::<Vec<_>>(), ["s1", "s2"], "by their index");
    assert!(matches!(streams[1], ImportedStreams::ByProperties { index: 3, .. }));
}

/// A small document may name a text of a megabyte for each of many operators. None of them gets a copy of its own.
#[test]
fn what_a_document_says_once_is_there_once() {
    let application = read(
        &CURRENT
            .replace("name=\"C\" index=\"4\" definitionIndex=\"9\"", "name=\"C\" index=\"4\" definitionIndex=\"4\""),
    );
    let of_definitions: Vec<_> = (application.operators.values())
        .filter_map(|operator| match &operator.kind {
            OperatorKind::Composite(Composite { definition_threading: DefinitionThreading::Model(model), .. }) => {
                Some(model)
            }
            _ => None,
        })
        .collect();
    let [main, inner] = of_definitions[..] else { panic!("{of_definitions:?}") };
    assert!(Arc::ptr_eq(main, inner), "instances of one definition");

    let application = read(OLDER);
    let (source, sink) = (primitive(&application, "S"), primitive(&application, "T"));
    assert!(Arc::ptr_eq(&source.shared_object, &sink.shared_object), "operators of one PE");
    assert!(Arc::ptr_eq(&source.wrapper, &sink.wrapper), "operators of one PE");
    let filters: Vec<_> = (application.operators.values())
        .filter_map(|operator| match &operator.kind {
            OperatorKind::Import(import) => import.filter.as_ref(),
            _ => None,
        })
        .collect();
    let [one, other] = filters[..] else { panic!("{filters:?}") };
    assert!(Arc::ptr_eq(one, other), "imports of one port");
}

#[test]
fn a_port_of_a_pe_leads_to_the_first_port_of_its_index() {
    let port = "<port index=\"0\"/></inputPorts><splAnnotation";
    assert!(OLDER.contains(port));
    let document = OLDER.replace(
        port,
        &port.replacen("<port index=\"0\"/>", "<port index=\"7\"/><port index=\"0\"/><port index=\"0\"/>", 1),
    );
    let application = read(&document);
    let encodings: Vec<_> =
        primitive(&application, "T").inputs.iter().map(|port| port.port.encoding.as_str()).collect();
    assert_eq!(encodings, ["LE", "BE", "LE"]);
}

#[test]
fn order_and_unknown_things_do_not_matter() {
    let expected = format!("{:?}", without_places(CURRENT));
    let reordered = move_to_end(CURRENT, "<hostpools>", "</hostpools>", "</splApplication>");
    let reordered = move_to_end(&reordered, "<tracing", "/>", "</primitiveOperInstance>");
    assert_ne!(reordered, CURRENT);
    assert_eq!(format!("{:?}", without_places(&reordered)), expected);
    let unknown = CURRENT
        .replace(
            "<libraries/>",
            "<x:libraries xmlns:x='u'><hostpools/></x:libraries><more a='1'>text<hostpools/></more>",
        )
        .replace("name=\"Src\"", "name=\"Src\" unknown=\"1\"")
        .replace("<composites>", "<!-- c --><?p i?><composites>");
    assert_eq!(format!("{:?}", without_places(&unknown)), expected);
}

/// The application without what depends on where things are written.
fn without_places(document: &str) -> String {
    let text = format!("{:?}", read(document));
    let mut kept = String::new();
    for piece in text.split("Place {") {
        kept.push_str(piece.split_once('}').map_or(piece, |(_, rest)| rest));
    }
    kept
}

fn move_to_end(document: &str, start: &str, end: &str, parent_end: &str) -> String {
    let from = document.find(start).unwrap();
    let to = from + document[from..].find(end).unwrap() + end.len();
    let moved = document[from..to].to_owned();
    let mut document = document.to_owned();
    document.replace_range(from..to, "");
    let at = from + document[from..].find(parent_end).unwrap();
    document.insert_str(at, &moved);
    document
}

#[test]
fn of_repeated_things_the_last_counts() {
    let twice = CURRENT.replacen(
        "<hostpools>",
        "<hostpools><hostpool name='a' index='9' membershipMode='shared'/></hostpools><hostpools>",
        1,
    );
    assert_eq!(read(&twice).host_pools.len(), 2);
    let twice = CURRENT.replace("<toolkits>", "<toolkits><toolkit index='0' name='old' version='1'/>");
    assert_eq!(read(&twice).toolkits[0].name, "t");
    let twice =
        CURRENT.replace("<tracing level=\"debug\" style=\"wrap\"/>", "<tracing level='debug'/><tracing level='info'/>");
    assert_eq!(primitive(&read(&twice), "C.Snk").trace_level, TraceLevel::Info);
    let application = CURRENT.find("<splApplication").unwrap();
    let second = CURRENT[application..].replace("</applicationSet>", "");
    let both =
        CURRENT.replace("</applicationSet>", &format!("{}</applicationSet>", second.replace("ns::Main", "Other")));
    assert_eq!(read(&both).name, "ns::Main", "only the first application counts");
}

#[test]
fn names_of_operators_are_theirs_alone() {
    let start = CURRENT.find("<primitiveOperInstance definitionIndex=\"0\" name=\"Src\"").unwrap();
    let end = start + CURRENT[start..].find("</primitiveOperInstance>").unwrap() + "</primitiveOperInstance>".len();
    let second = CURRENT[start..end].replace("index=\"0\" sourceIndex", "index=\"17\" sourceIndex");
    let twice = format!("{}{second}{}", &CURRENT[..end], &CURRENT[end..]);
    let [problem] = &problems(&twice)[..] else { panic!("{:?}", problems(&twice)) };
    assert!(problem.ends_with("two operators have the name Src"), "{problem}");
    // The same name in another composite is another name.
    assert_eq!(problems(&CURRENT.replace("name=\"C.Snk\"", "name=\"C.Src\"")), [""; 0]);
    let [problem] = &problems(&CURRENT.replace("name=\"Src\"", "name=\"S[0]\""))[..] else { panic!() };
    assert!(problem.contains("has a bracket"), "{problem}");
}

#[test]
fn problems_name_the_thing_and_the_place() {
    for (from, to, expected) in [
        (
            "membershipMode=\"exclusive\"",
            "membershipMode=\"EXCLUSIVE\"",
            "7:3: <hostpool>: membershipMode=\"EXCLUSIVE\" is not one of shared, exclusive",
        ),
        ("membershipMode=\"exclusive\"", "", "7:3: <hostpool>: the attribute membershipMode is missing"),
        ("size=\"2\"", "size=\"two\"", "7:3: <hostpool>: size=\"two\" is not an unsigned integer"),
        ("runtimeType=\"Java\"", "runtimeType=\"Perl\"", "is not one of SPL_CPlusPlus, SPL_Java, Java"),
        ("encoding=\"NBO\"", "encoding=\" NBO\"", "encoding=\" NBO\" is not one of NBO, LE, BE"),
        ("transport=\"TCP\" name=\"In\"", "transport=\"UDP\" name=\"In\"", "transport=\"UDP\" is not one of TCP"),
        ("level=\"debug\"", "level=\"loud\"", "level=\"loud\" is not one of off, error"),
        ("policy=\"periodic\"", "policy=\"x\"", "policy=\"x\" is not one of periodic, operatorDriven"),
        ("period=\"2.5\"", "period=\"x\"", "period=\"x\" is not a number"),
        ("congestionPolicy=\"dropFirst\"", "congestionPolicy=\"x\"", "is not one of wait, dropFirst, dropLast"),
        ("kind=\"Gauge\"", "kind=\"x\"", "is not one of Gauge, Counter, Time"),
        ("kind=\"namedList\"", "kind=\"x\"", "is not one of named, namedList"),
        ("avoidRuntimeYield=\"auto\"", "avoidRuntimeYield=\"x\"", "is not one of auto, yes, no"),
        ("operIndex=\"4\"", "operIndex=\"one\"", "<connection>: operIndex=\"one\" is not an unsigned integer"),
        ("operIndex=\"4\"", "", "<connection>: the attribute operIndex is missing"),
        ("portKind=\"output\"", "", "<connection>: the attribute portKind is missing"),
        ("<constantWidth>3<", "<constantWidth>three<", "<constantWidth>: \"three\" is not an integer"),
        ("ForWidth>3<", "ForWidth><", "\"\" is not an unsigned integer"),
        ("<customMetricIndex>1<", "<customMetricIndex>-1<", "\"-1\" is not an unsigned integer"),
        ("<hostpools>", "<x>", "the ADL cannot be read"),
        ("<runtimeConstants/>", "", "<primitiveOperInstance>: the element <runtimeConstants> is missing"),
        ("<uri>bin/Src.so</uri>", "", "<sharedObject>: the element <uri> is missing"),
        ("<propertyBasedImport subscription=\"a &amp;&amp; b\" applicationScope=\"sc\"/>", "", "is missing"),
        ("type=\"rstring[64]\"", "", "tuple type: the type of a is missing"),
        ("keyType=\"rstring\"", "", "<map>: the type of its keys is missing"),
        (
            "index\" type=\"int32\">0</value></splAnnotation>",
            "index\" type=\"int32\">x</value></splAnnotation>",
            "@consistentRegion: its index",
        ),
        ("index\" type=\"int32\">0</value><", "index\" type=\"int32\">x</value><", "@consistentRegionEntry: its index"),
        ("bundle=\"./x.sab\"", "", "<splApplication>: the attribute bundle is missing"),
    ] {
        assert!(CURRENT.contains(from), "{from}");
        let messages = problems(&CURRENT.replacen(from, to, 1));
        assert!(messages.iter().any(|problem| problem.contains(expected)), "{from} -> {to}: {messages:?}");
    }
    let missing = CURRENT.replace("<tuple>", "<attributes>").replace("</tuple>", "</attributes>");
    assert!(problems(&missing)[0].contains("<tupleType>: the element <tuple> is missing"));
    assert_eq!(
        problems("<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200'/>"),
        ["1:1: there is no <splApplication>"]
    );
    for root in [
        "<applicationSet/>",
        "<x/>",
        "<splApplication xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200'/>",
    ] {
        assert!(problems(root)[0].contains("CDISA5089E"), "{root}");
    }
}

#[test]
fn what_the_reference_tolerates_is_tolerated() {
    for (from, to) in [
        ("kind=\"Hash\"", "kind=\"Unknown\""),
        ("portKind=\"output\"", "portKind=\"sideways\""),
        ("congestionPolicy=\"dropConnection\"", "congestionPolicy=\"x\""),
        ("isMutable=\"true\"", ""),
        ("optimized=\"true\"", "optimized=\"maybe\""),
        ("<tracing level=\"debug\" style=\"wrap\"/>", ""),
        ("<libraries/>", ""),
        ("<envVars><envVar name=\"A\" value=\"1\"/></envVars>", ""),
        ("startLine=\"1\"", ""),
        ("operIndex=\"4\"", "operIndex=\" +4 \""),
        ("<constantWidth>3<", "<constantWidth>-3<"),
    ] {
        assert!(CURRENT.contains(from), "{from}");
        assert_eq!(problems(&CURRENT.replacen(from, to, 1)), [""; 0], "{from} -> {to}");
    }
}

#[test]
fn all_problems_are_told_but_not_without_end() {
    let several = CURRENT
        .replace("encoding=\"LE\"", "encoding=\"XX\"")
        .replace("<toolkits>", "<x>")
        .replace("</toolkits>", "</x>");
    assert_eq!(problems(&several).len(), 2);
    let many = CURRENT.replace("<toolkits>", &format!("<toolkits>{}", "<toolkit/>".repeat(10_000)));
    assert_eq!(problems(&many).len(), 100);
}

#[test]
fn the_older_dialect_has_problems_of_its_own() {
    for (from, to, expected) in [
        ("<operInstance index=\"1\"", "<operInstance index=\"9\"", "there is no operator 9"),
        ("<operInstance index=\"1\"", "<operInstance index=\"9\"", "no <operInstance> describes operator 1"),
        ("importOperName=\"J\"", "importOperName=\"E\"", "there is no Import named E"),
        ("exportOperName=\"E\"", "exportOperName=\"X\"", "there is no Export named X"),
        ("exportOperName=\"E\"", "exportOperName=\"X\"", "no <exportedStream> describes the Export E"),
        ("<executable ", "<other ", "cannot be read"),
    ] {
        let messages = problems(&OLDER.replacen(from, to, 1));
        assert!(messages.iter().any(|problem| problem.contains(expected)), "{from} -> {to}: {messages:?}");
    }
}

#[test]
fn names_that_multiply_are_refused() {
    // Each level repeats a long name in the names of everything below.
    let name = "n".repeat(4 << 10);
    let mut inside = String::new();
    for level in 0..40_000 {
        inside += &format!("<compositeOperInstance name='c{level}' index='{level}' definitionIndex='0'/>");
    }
    let around =
        format!("<compositeOperInstance name='{name}' index='1' definitionIndex='0'>{inside}</compositeOperInstance>");
    let from = CURRENT.find("<compositeOperInstance name=\"C\"").unwrap();
    let mut document = CURRENT.to_owned();
    document.insert_str(from, &around);
    assert!(problems(&document)[0].contains("qualified names"), "{:?}", problems(&document));
}

proptest! {
    #![proptest_config(streams_test_support::property_cases(512))]

    /// Whatever becomes of a document, reading it ends with an application or with problems of this stage.
    #[test]
    fn mutated_documents_never_panic(
        older in any::<bool>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..200_usize, ".{0,6}|[<>&\"'/= ]{1,3}|<[a-zA-Z]{1,12}/>"), 1..4),
    ) {
        let mut document = if older { OLDER } else { CURRENT }.to_owned();
        for (at, cut, text) in edits {
            let mut from = at.index(document.len());
            while !document.is_char_boundary(from) {
                from -= 1;
            }
            let mut to = (from + cut).min(document.len());
            while !document.is_char_boundary(to) {
                to += 1;
            }
            document.replace_range(from..to, &text);
        }
        match parse(document.as_bytes(), &Budget::default()) {
            Ok(_) => {}
            Err(Error::Rejected(problems)) => {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| problem.stage == Stage::LogicalModel && problem.message.len() < 400));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
