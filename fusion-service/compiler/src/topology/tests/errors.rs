//! Applications that the topology stage refuses, with stage and code (rule expansion-32).

use super::sketch::Expand;
use crate::budget::{Budget, Limits};
use crate::error::{Error, Stage};
use streams_test_support::application::Sketch;

const INCONSISTENT: Option<&str> = Some("CDISR1358E");

/// Source, parallel operator, sink.
fn pipeline() -> Sketch {
    Sketch::new().op("Src", 0, 1).op("P", 1, 1).op("Snk", 1, 0).chain(&["Src", "P", "Snk"])
}

fn by_value(rest: &str) -> Sketch {
    let width = "<submissionTimeParameterIndexForWidth>0</submissionTimeParameterIndexForWidth>";
    pipeline().parallel_by("P", width, "RoundRobin", "").value(0, "w", rest)
}

#[track_caller]
fn refused(what: &str, sketch: &Sketch, code: Option<&str>) {
    match sketch.expand() {
        Err(Error::Rejected(problems)) => {
            let first = &problems[0];
            assert_eq!((first.stage, first.code), (Stage::Topology, code), "{what}: {first}");
            assert!(first.message.len() < 300, "{what}: {first}");
        }
        Err(error) => panic!("{what}: {error}"),
        Ok(topology) => panic!("{what}: accepted\n{topology}"),
    }
}

#[test]
fn widths() {
    for (what, sketch, code) in [
        ("zero", pipeline().parallel("P", 0), Some("CDISR1164E")),
        ("negative", pipeline().parallel("P", -3), Some("CDISR1164E")),
        ("override", pipeline().parallel("P", 2).override_width("P", 0), Some("CDISR1164E")),
        ("default", by_value("defaultValue='\"-0\"'"), Some("CDISR1164E")),
        ("blank", by_value("defaultValue='\" 2\"'"), Some("CDISR1143E")),
        ("empty", by_value("defaultValue='\"\"'"), Some("CDISR1143E")),
        ("no value", by_value(""), None),
        ("too large", pipeline().parallel("P", 10_001), None),
        ("absurd", pipeline().parallel("P", "99999999999999999999999"), None),
        ("absurd override", pipeline().parallel("P", 1).override_width("*", i128::MAX), None),
        ("none", pipeline().parallel_by("P", "", "Hash", ""), None),
        ("unknown operator", pipeline().parallel("Q", 2), None),
        ("bad pattern", pipeline().override_width("P|Q", 2), None),
        (
            "unknown value",
            pipeline().parallel_by(
                "P",
                "<submissionTimeParameterIndexForWidth>7</submissionTimeParameterIndexForWidth>",
                "Hash",
                "",
            ),
            None,
        ),
    ] {
        refused(what, &sketch, code);
    }
    assert!(by_value("defaultValue='\"+3\"'").expand().is_ok());
    assert!(pipeline().parallel("P", 0).override_width("P", 1).expand().is_ok(), "an override hides the ADL's width");
    assert!(pipeline().override_width("Nothing", 0).expand().is_ok(), "a pattern that matches nothing");
}

#[test]
fn connections() {
    let adl = |from: &str, to: &str| {
        let document = pipeline().parallel("P", 2).adl().replacen(from, to, 1);
        let application = crate::adl::parse(document.as_bytes(), &Budget::default())?;
        let parameters = crate::topology::Parameters::default();
        crate::topology::expand(&std::sync::Arc::new(application), &parameters, &Budget::default())
    };
    for (what, from, to, code) in [
        ("operator", "operIndex='1' portIndex='0'", "operIndex='9' portIndex='0'", INCONSISTENT),
        ("port", "operIndex='1' portIndex='0'", "operIndex='1' portIndex='5'", INCONSISTENT),
        ("twice", "index='1' name='P'", "index='0' name='P'", INCONSISTENT),
        (
            "mirror",
            "operIndex='0' portIndex='0' portKind='output'",
            "operIndex='2' portIndex='0' portKind='input'",
            INCONSISTENT,
        ),
        ("definition", "definitionIndex='0' index='0'", "definitionIndex='7' index='0'", None),
        ("composite definition", "definitionIndex='0' index='3'", "definitionIndex='7' index='3'", None),
        (
            "splitter",
            "<splitter kind='RoundRobin' iportIndex='0'>",
            "<splitter kind='RoundRobin' iportIndex='3'>",
            None,
        ),
        ("scope", "streamName='P'", "streamName='Q.P'", INCONSISTENT),
        ("gap", "index='3' name='Main'", "index='2' name='Main'", INCONSISTENT),
    ] {
        let Err(error) = adl(from, to) else { panic!("{what}: accepted") };
        let first = &error.problems()[0];
        assert_eq!((first.stage, first.code), (Stage::Topology, code), "{what}: {first}");
        assert!(first.place.is_some(), "{what}: {first}");
    }
}

/// Expansion comes before links are followed, so its problems decide the code.
#[test]
fn a_wrong_width_is_told_before_other_problems() {
    let document = pipeline().parallel("P", 0).adl();
    for (what, from, to) in [
        ("operator", "operIndex='1' portIndex='0'", "operIndex='9' portIndex='0'"),
        ("twice", "index='0' name='Src'", "index='2' name='Src'"),
        ("splitter", "<splitter kind='RoundRobin' iportIndex='0'>", "<splitter kind='RoundRobin' iportIndex='3'>"),
        ("definition", "definitionIndex='0' index='0'", "definitionIndex='7' index='0'"),
        ("scope", "streamName='P'", "streamName='Q.P'"),
    ] {
        let application = crate::adl::parse(document.replacen(from, to, 1).as_bytes(), &Budget::default()).unwrap();
        let parameters = crate::topology::Parameters::default();
        let error = crate::topology::expand(&std::sync::Arc::new(application), &parameters, &Budget::default());
        assert_eq!(error.unwrap_err().problems()[0].code, Some("CDISR1164E"), "{what}");
    }
}

#[test]
fn imports_and_exports() {
    let name = "<nameBasedImport applicationName='a' streamName='s'/>";
    let import = || Sketch::new().import("Imp", name, "").op("P", 1, 1);
    let subscribe = |subscription: &str, filter: &str| {
        let what = format!("<propertyBasedImport subscription='{subscription}'/>");
        Sketch::new().import("Imp", &what, &format!("filter='{filter}'")).op("P", 1, 0).chain(&["Imp", "P"])
    };
    for (what, sketch) in [
        ("import before", import().chain(&["Imp", "P"]).parallel("P", 2)),
        ("import as", import().chain(&["Imp", "P"]).parallel("Imp", 2)),
        ("export as", Sketch::new().op("P", 0, 1).export("Exp", "", "").chain(&["P", "Exp"]).parallel("Exp", 1)),
        ("export behind", Sketch::new().op("P", 0, 1).export("Exp", "", "").chain(&["P", "Exp"]).parallel("P", 2)),
        (
            "import through a composite",
            Sketch::new()
                .import("Imp", name, "")
                .composite("C", 1, 0)
                .op("C.P", 1, 0)
                .chain(&["Imp", "C", "C.P"])
                .parallel("C.P", 2),
        ),
        (
            "import leaves a region",
            Sketch::new()
                .composite("C", 0, 1)
                .import("C.Imp", name, "")
                .op("Snk", 1, 0)
                .chain(&["C.Imp", "C", "Snk"])
                .parallel("C", 2),
        ),
        (
            "stream exported in a region it enters",
            Sketch::new()
                .op("Src", 0, 1)
                .composite("C", 1, 0)
                .export("C.Exp", "", "")
                .chain(&["Src", "C", "C.Exp"])
                .parallel("C", 2),
        ),
        ("subscription", subscribe("a b", "")),
        ("subscription not closed", subscribe("(a == 1", "")),
        ("filter", subscribe("a == 1", "x-1 == 2")),
        ("fold", subscribe("1 / 0 == 1", "")),
    ] {
        refused(what, &sketch, INCONSISTENT);
    }
}

#[test]
fn locations() {
    let at = |id: &str| pipeline().resources(&format!("<coLocation colocId='{id}'/>")).parallel("P", 2);
    let inside = |id: &str| {
        let resources = format!("<coLocation colocId='{id}'/>");
        Sketch::new().op("P", 0, 1).resources(&resources).op("Snk", 1, 0).chain(&["P", "Snk"]).parallel("P", 2)
    };
    assert!(at("byChannel(x, 0)").expand().is_ok(), "outside regions the depth does not matter");
    refused("depth", &inside("byChannel(x, 3)"), None);
    refused("depth", &inside("byChannel(x, y)"), None);
    let pool = |region: &str| {
        let sketch = Sketch::new().op("P", 0, 0).resources("<poolLocation poolIndex='7'/>");
        sketch.parallel_by("P", "<constantWidth>2</constantWidth>", "Hash", region)
    };
    refused("unknown pool", &pool("<replicateHostTag name='t'/>"), INCONSISTENT);
    assert!(pool("").expand().is_ok(), "found by a later stage");
}

#[test]
fn consistent_regions() {
    let start = "isStartOfRegion";
    let two = |trigger: &str, second: &str| {
        Sketch::new()
            .declare(0, trigger)
            .op("A", 0, 1)
            .consistent(0, start)
            .op("B", 1, 0)
            .consistent(0, second)
            .chain(&["A", "B"])
    };
    refused("two starts", &two("operatorDriven", start), Some("CDISR1359E"));
    assert!(two("operatorDriven", "").expand().is_ok());
    assert!(two("periodic", start).expand().is_ok());
    assert!(two("operatorDriven", "").parallel("A", 3).expand().is_ok(), "channels are one place of the program");
    refused("undeclared", &Sketch::new().op("A", 0, 0).consistent(3, start), INCONSISTENT);
    let exported = |middle: &str, last: &str| {
        let source = Sketch::new().declare(0, "periodic").op("A", 0, 1).consistent(0, start).op("B", 1, 1);
        let source = if middle == "autonomous" { source } else { source.consistent(0, middle) };
        source.export("Exp", "", "").with(last).chain(&["A", "B", "Exp"])
    };
    let entry = "<splAnnotation tag='consistentRegionEntry'><value key='index' type=''>0</value></splAnnotation>";
    refused("an Export of the region", &exported("", entry), INCONSISTENT);
    refused("an Export of the region behind a merger", &exported("", entry).parallel("A", 2), INCONSISTENT);
    assert!(exported("", "").expand().is_ok());
    assert!(exported("isEndOfRegion", entry).expand().is_ok(), "the region does not get there");
    assert!(exported("autonomous", entry).expand().is_ok(), "the region does not get there");
    let declaration = "<splAnnotation tag='consistentRegion'><value key='index' type=''>0</value></splAnnotation>";
    refused("no time-outs", &Sketch::new().main(declaration).op("A", 0, 0).consistent(0, start), None);
}

#[test]
fn annotations_and_constants_need_their_values() {
    let annotation = "<splAnnotation tag='t'><value key='k' type='' submissionTimeValueIndex='4'/></splAnnotation>";
    refused("unknown value", &Sketch::new().op("A", 0, 0).with(annotation), None);
    refused("no value", &Sketch::new().op("A", 0, 0).with(annotation).value(4, "v", ""), None);
    let constant = "<runtimeConstants><runtimeConstant name='c' submissionTimeValueIndex='4'/></runtimeConstants>";
    refused("unknown value", &Sketch::new().op("A", 0, 0).with(constant), None);
    let absent = Sketch::new().op("A", 0, 0).with(constant).value(4, "v", "").expand().unwrap();
    assert_eq!(*absent.operators.values().next().unwrap().runtime_constants, [("c".to_owned(), None)]);
}

#[test]
fn limits() {
    let within = |limits: Limits, sketch: &Sketch| sketch.expand_within(&Budget::with_limits(limits)).is_ok();
    let sketch = pipeline().parallel("P", 4);
    for (what, limits, expected) in [
        ("width", Limits { width: 4, ..Limits::default() }, true),
        ("width", Limits { width: 3, ..Limits::default() }, false),
        ("operators", Limits { operators: 6, ..Limits::default() }, true),
        ("operators", Limits { operators: 5, ..Limits::default() }, false),
        ("connections", Limits { connections: 8, ..Limits::default() }, true),
        ("connections", Limits { connections: 7, ..Limits::default() }, false),
        ("texts", Limits { aadl_bytes: 8, ..Limits::default() }, false),
    ] {
        assert_eq!(within(limits, &sketch), expected, "{what}");
    }
}

#[test]
fn all_problems_are_told() {
    let error = pipeline().op("Q", 0, 0).parallel("P", 0).parallel("Q", -1).expand().unwrap_err();
    assert_eq!(error.problems().len(), 2, "{error}");
}
