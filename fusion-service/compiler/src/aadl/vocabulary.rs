//! The AADL vocabulary: every element and attribute of a document, and whether a running PE can observe it.
//!
//! Only this module says which changes of a document restart its PE (rules aadl-5 and aadl-18). The writer can only
//! write what is listed here. Each entry has a class:
//!
//! * `observed`: the runtime reads it. A change of its value changes the runtime id, so the PE restarts.
//! * `hidden`, with the reason: the runtime does not read it. It is in the text and in the content id only. What is
//!   inside a hidden element is hidden too, whatever it says itself.
//! * `observed unless`, with what the job says: as `observed`, but for a job that says so (rule aadl-22). The writer
//!   then leaves it out of the runtime id.
//! * `observed if connected`: an element that is as `observed` where a connection is somewhere in the element around
//!   it, and as `hidden` where there is none (rule aadl-12). The writer then leaves it out of the runtime id.
//! * `fixed`, with the value: it is the same in every document.
//!
//! [`super::hashing_writer`] uses the classes for the runtime id, [`super::difference`] to find out which differences a
//! running PE can observe. `docs/observable.md` is the same table for readers; a test compares the two.
//!
//! `key` marks the attributes that say which of several siblings an element is. `mark` is the byte that begins an
//! element, or announces an attribute that may be absent, in what is hashed for the runtime id; no two things that can
//! follow each other have the same one. Changing a mark changes the runtime ids of all PEs.
//!
//! Knows: names. Must not know: where values come from.

use super::element::{VocabularyEntry, attributes, elements};

/// Tags of the annotations that the runtime reads (rule aadl-13).
const OBSERVED_TAGS: &[&str] = &["consistentRegionEntry", "catch", "threading", EVENT_TIME];

/// The tag of the annotation that names the operators where event time comes from. The ADL names them by ADL index. The
/// writer replaces these by the operator indexes of the job.
pub(super) const EVENT_TIME: &str = "eventTimeContext";

/// Whether the runtime reads annotations with this tag.
pub(super) fn is_observed(tag: &str) -> bool {
    OBSERVED_TAGS.contains(&tag)
}

/// The entry of an element called `name` inside one called `around`.
pub(super) fn entry(around: &str, name: &str) -> Option<&'static VocabularyEntry> {
    ELEMENTS.iter().find(|entry| entry.name == name && entry.within.contains(&around))
}

/// The entry of the root.
pub(super) fn root() -> Option<&'static VocabularyEntry> {
    ELEMENTS.iter().find(|entry| entry.within.is_empty())
}

elements! {
    // The PE.

    AugmentedPe "aug:augmentedPE" in [] [observed mark 1] {
        NAMESPACE "xmlns" [fixed "http://www.ibm.com/xmlns/prod/streams/application"];
        TUPLE_TYPE_NAMESPACE "xmlns:tt" [fixed "http://www.ibm.com/xmlns/prod/streams/spl/tupleType"];
        PHYSICAL_NAMESPACE "xmlns:phy" [fixed "http://www.ibm.com/xmlns/prod/streams/application/physical"];
        AUGMENTED_NAMESPACE "xmlns:aug" [fixed "http://www.ibm.com/xmlns/prod/streams/application/augmented"];
        SCHEMA_NAMESPACE "xmlns:xsi" [fixed "http://www.w3.org/2001/XMLSchema-instance"];
        ID "id" [observed key];
        LOGICAL_INDEX "logicalIndex" [hidden "the runtime does not read it"];
        OPTIMIZED "optimized" [observed];
        RESTARTABLE "restartable" [observed];
        RELOCATABLE "relocatable" [hidden "for the controller"];
        JOB_ID "jobId" [observed];
        JOB_NAME "jobName" [observed];
        USER "user" [fixed "user"];
        APPLICATION_SCOPE "applicationScope" [observed];
        CLASS "class" [fixed ""];
        LANGUAGE "language" [fixed "Java"];
        LAUNCH_COUNT "launchCount" [fixed "0"];
        DATA_DIRECTORY "dataDirectory" [observed];
        APPLICATION_DIRECTORY "applicationDirectory" [observed];
        OUTPUT_DIRECTORY "outputDirectory" [observed];
        CHECKPOINT_DIRECTORY "checkpointDirectory" [observed];
        DISPLAY "display" [hidden "the runtime does not read it"];
        BUILD_ID "buildId" [hidden "the runtime does not read it"];
        BUNDLE "bundle" [hidden "the runtime does not read it"];
        PROFILE_DIRECTORY "profileDirectory" [fixed ""];
        VERSION "version" [observed];
        APPLICATION_NAME "applicationName" [observed];
        JOB_GROUP "jobGroup" [fixed "default"];
        AVOID_RUNTIME_YIELD "avoidRuntimeYield" [observed];
        EXEC_STREAMS_VERSION "execStreamsVersion" [fixed "4.2.4.0"];
        GENERATION_ID "genId" [fixed "0"];
    }

    Libraries "libraries" in ["aug:augmentedPE"] [fixed ""] {}

    HostPools "hostpools" in ["aug:augmentedPE"] [hidden "hosts matter before the start only"] {}
    HostPool "hostpool" in ["hostpools"] [hidden "hosts matter before the start only"] {
        NAME "name" [hidden];
        INDEX "index" [hidden key];
        MEMBERSHIP_MODE "membershipMode" [hidden];
        SIZE "size" [hidden];
    }
    PoolHost "host" in ["hostpool"] [hidden "hosts matter before the start only"] {
        HOST_NAME "hostname" [hidden key];
    }
    PoolTag "tag" in ["hostpool"] [hidden "hosts matter before the start only"] {
        NAME "name" [hidden key];
    }

    TupleTypes "tupleTypes" in ["aug:augmentedPE"] [observed] {}
    TupleType "tupleType" in ["tupleTypes"] [observed mark b'T'] {
        INDEX "index" [observed key];
    }
    TupleAttribute "attribute" in ["tupleType", "aug:tupleType"] [observed mark b'a'] {
        NAME "name" [observed key];
        TYPE "type" [observed];
    }
    TupleStructure "tuple" in ["tupleType", "aug:tupleType"] [hidden "says what the flat list says"] {}
    StructureAttribute "tt:attr" in ["tuple", "tt:tuple"] [hidden "as the structure around it"] {
        NAME "name" [hidden];
        TYPE "type" [hidden];
    }
    StructureList "tt:list" in ["tt:attr", "tt:list", "tt:set", "tt:key", "tt:value", "tt:optional"]
            [hidden "as the structure around it"] {
        BOUND "bound" [hidden];
        ELEMENT_TYPE "elementType" [hidden];
    }
    StructureSet "tt:set" in ["tt:attr", "tt:list", "tt:set", "tt:key", "tt:value", "tt:optional"]
            [hidden "as the structure around it"] {
        BOUND "bound" [hidden];
        ELEMENT_TYPE "elementType" [hidden];
    }
    StructureMap "tt:map" in ["tt:attr", "tt:list", "tt:set", "tt:key", "tt:value", "tt:optional"]
            [hidden "as the structure around it"] {
        BOUND "bound" [hidden];
        KEY_TYPE "keyType" [hidden];
        VALUE_TYPE "valueType" [hidden];
    }
    StructureKey "tt:key" in ["tt:map"] [hidden "as the structure around it"] {}
    StructureValue "tt:value" in ["tt:map"] [hidden "as the structure around it"] {}
    StructureOptional "tt:optional" in ["tt:attr", "tt:list", "tt:set", "tt:key", "tt:value", "tt:optional"]
            [hidden "as the structure around it"] {
        TYPE "type" [hidden];
    }
    StructureTuple "tt:tuple" in ["tt:attr", "tt:list", "tt:set", "tt:key", "tt:value", "tt:optional"]
            [hidden "as the structure around it"] {}

    EnvironmentVariables "aug:envVars" in ["aug:augmentedPE"] [fixed ""] {}

    Executable "aug:executable" in ["aug:augmentedPE"] [observed] {
        DYNAMIC_LOAD "dynamicLoad" [fixed "true"];
        DIGEST "digest" [fixed ""];
    }
    Wrapper "wrapper" in ["aug:executable", "sharedObject"] [observed] {}
    ExecutableUri "executableUri" in ["aug:executable"] [fixed ""] {}
    Arguments "arguments" in ["aug:executable"] [fixed ""] {}
    Dependencies "dependencies" in ["aug:executable"] [fixed ""] {}

    // Operators.

    OperInstances "aug:operInstances" in ["aug:augmentedPE"] [observed] {}
    OperInstance "operInstance" in ["aug:operInstances"] [observed mark b'O'] {
        TYPE "xsi:type" [fixed "phy:physOperInstanceType"];
        INDEX "index" [observed key];
        NAME "name" [observed];
        CLASS "class" [observed];
        DEFINITION_INDEX "definitionIndex" [observed];
        RESTARTABLE "restartable" [hidden "for the controller"];
        RELOCATABLE "relocatable" [hidden "for the controller"];
        LAUNCH_COUNT "launchCount" [fixed "1"];
        LOGICAL_NAME "logicalName" [observed];
        LOGICAL_INDEX "logicalIndex" [hidden "for tools"];
        TOOLKIT_INDEX "toolkitIndex" [observed];
        SINGLE_THREADED_ON_INPUTS "singleThreadedOnInputs" [observed];
        SINGLE_THREADED_ON_OUTPUTS "singleThreadedOnOutputs" [observed];
    }

    SharedObject "sharedObject" in ["operInstance"] [observed] {}
    SharedObjectUri "sharedObjectUri" in ["sharedObject"] [observed] {}

    Resources "resources" in ["operInstance"] [hidden "hosts matter before the start only"] {
        ISOLATION "isolation" [hidden];
    }
    HostLocation "hostLocation" in ["resources"] [hidden "hosts matter before the start only"] {
        HOST_NAME "hostname" [hidden];
    }
    PoolLocation "poolLocation" in ["resources"] [hidden "hosts matter before the start only"] {
        POOL_INDEX "poolIndex" [hidden];
        IN_POOL_INDEX "inpoolIndex" [hidden];
    }
    CoLocation "coLocation" in ["resources"] [hidden "hosts matter before the start only"] {
        ID "colocId" [hidden key];
    }
    ExLocation "exLocation" in ["resources"] [hidden "hosts matter before the start only"] {
        ID "exlocId" [hidden key];
    }

    CheckpointingElement "checkpointing" in ["operInstance"] [observed] {
        POLICY "policy" [observed];
        PERIOD "period" [observed];
    }

    RuntimeConstants "runtimeConstants" in ["operInstance"] [observed] {}
    RuntimeConstant "runtimeConstant" in ["runtimeConstants"] [observed mark b'c'] {
        NAME "name" [observed key];
        VALUE "value" [observed];
    }

    InputPorts "inputPorts" in ["operInstance"] [observed] {}
    InputPort "inputPort" in ["inputPorts"] [observed mark b'I'] with PortAttributes {
        IS_CONTROL "isControl" [observed];
    }
    IncomingInterPeConnection "interPeConnection" in ["inputPort"] [observed mark b'>'] with ChannelAttributes {
        OPERATOR "operInstanceIndex" [observed key];
        PORT "oportIndex" [observed key];
        PE_PORT "pePortIndex" [hidden "PEs connect by static connections"];
    }
    IncomingIntraPeConnection "intraPeConnection" in ["inputPort"] [observed mark b'='] with ChannelAttributes {
        OPERATOR "operInstanceIndex" [observed key];
        PORT "oportIndex" [observed key];
    }
    ThreadedPort "threadedPort" in ["inputPort"] [observed] {
        CONGESTION_POLICY "congestionPolicy" [observed];
        QUEUE_SIZE "queueSize" [observed];
        SINGLE_THREADED_ON_INPUT "singleThreadedOnInput" [observed];
        IS_INJECTED "isInjected" [observed];
    }

    OutputPorts "outputPorts" in ["operInstance"] [observed] {}
    OutputPort "outputPort" in ["outputPorts"] [observed mark b'o'] with PortAttributes {
        TYPE "xsi:type" [fixed "phy:physOperInstanceOutputPortType"];
        VIEWABLE "viewable" [hidden "for tools"];
        LOGICAL_STREAM_NAME "logicalStreamName" [hidden "for tools"];
        STREAM_NAME "streamName" [hidden "for tools"];
    }
    OutgoingInterPeConnection "interPeConnection" in ["outputPort", "parallelChannel"] [observed mark b'<'] {
        OPERATOR "operInstanceIndex" [observed key];
        PORT "iportIndex" [observed key];
        PE_PORT "pePortIndex" [hidden "PEs connect by static connections"];
    }
    OutgoingIntraPeConnection "intraPeConnection" in ["outputPort", "parallelChannel"] [observed mark b'='] {
        OPERATOR "operInstanceIndex" [observed key];
        PORT "iportIndex" [observed key];
    }
    Splitter "splitter" in ["outputPort", "parallelChannel"] [observed mark b'S'] {
        KIND "kind" [observed];
        INDEX "index" [observed key];
        INPUT_PORT "iportIndex" [observed];
        REGION "regionIndex" [observed];
        DROP_WINDOW_PUNCTUATION "dropWindowPuncts" [observed];
    }
    ParallelChannel "parallelChannel" in ["splitter"] [observed if connected mark b'C'] {
        INDEX "index" [observed key];
    }
    SplitterAttributes "attributes" in ["splitter"] [observed] {}
    SplitterAttribute "attribute" in ["attributes"] [observed mark b'A'] {
        NAME "name" [observed key];
    }

    Annotation "phy:annotation" in ["operInstance"] [observed only "tag" in OBSERVED_TAGS] {
        TAG "tag" [observed key];
    }
    AnnotationTuple "tuple" in ["phy:annotation", "attr", "listEntry"] [observed] {}
    AnnotationAttribute "attr" in ["tuple"] [observed mark b'K'] {
        KEY "key" [observed key];
        VALUE "value" [observed mark b'"'];
    }
    AnnotationList "list" in ["attr", "listEntry"] [observed mark b'['] {}
    AnnotationListEntry "listEntry" in ["list"] [observed] {
        VALUE "value" [observed mark b'"'];
    }

    JvmArguments "phy:jvmArguments" in ["operInstance"] [observed] {}
    JvmArgument "phy:jvmArgument" in ["phy:jvmArguments"] [observed mark b'j'] {}

    ParallelRegions "phy:parallelRegions" in ["operInstance"] [observed] {}
    ParallelRegion "phy:parallelRegion" in ["phy:parallelRegions"] [observed mark b'R'] {
        REGION "regionIndex" [observed key];
        LOCAL_CHANNEL "localChannelIndex" [observed];
        GLOBAL_CHANNEL "globalChannelIndex" [observed];
        LOCAL_MAX_CHANNELS "localMaxChannels" [observed unless "the job ignores the count"];
        GLOBAL_MAX_CHANNELS "globalMaxChannels" [observed unless "the job ignores all counts in it"];
    }

    // PE ports.

    PeInputPorts "aug:inputPorts" in ["aug:augmentedPE"] [observed mark 2] {}
    PeInputPort "aug:inputPort" in ["aug:inputPorts"] [observed mark b'i'] with PePortAttributes {}
    PeOutputPorts "aug:outputPorts" in ["aug:augmentedPE"] [observed mark 3] {}
    PeOutputPort "aug:outputPort" in ["aug:outputPorts"] [observed mark b'o'] with PePortAttributes {
        SINGLE_THREADED "singleThreadedOnOutput" [observed];
    }
    PortTupleType "aug:tupleType" in ["aug:inputPort", "aug:outputPort"] [observed mark b't'] {
        INDEX "index" [observed key];
    }

    ImportedStreams "aug:importedStreams" in ["aug:inputPort"] [observed mark b'n'] {
        FILTER "filter" [observed];
    }
    NameBasedImport "nameBasedImport" in ["aug:importedStreams"] [observed mark b'N'] {
        INDEX "index" [observed key];
        APPLICATION_NAME "applicationName" [observed];
        APPLICATION_SCOPE "applicationScope" [observed];
        OPERATOR_NAME "importOperName" [observed];
        STREAM_NAME "streamName" [observed];
    }
    PropertyBasedImport "propertyBasedImport" in ["aug:importedStreams"] [observed mark b'P'] {
        INDEX "index" [observed];
        APPLICATION_SCOPE "applicationScope" [observed];
        OPERATOR_NAME "importOperName" [observed];
        SUBSCRIPTION "subscription" [observed];
    }

    ExportedStream "aug:exportedStream" in ["aug:outputPort"] [observed mark b'x'] {
        NAME "name" [observed];
        OPERATOR_NAME "exportOperName" [observed];
        ALLOW_FILTER "allowFilter" [observed];
        CONGESTION_POLICY "congestionPolicy" [observed];
    }
    Properties "properties" in ["aug:exportedStream"] [observed] {}
    Property "property" in ["properties"] [observed mark b'p'] {
        NAME "name" [observed key];
        TYPE "type" [observed];
    }
    PropertyValue "value" in ["property"] [observed mark b'V'] {}

    StaticConnections "aug:staticConnections" in ["aug:inputPort", "aug:outputPort"] [observed] {}
    StaticConnection "aug:staticConnection" in ["aug:staticConnections"] [observed mark b's'] {
        PE "peId" [observed key];
        OUTPUT_ID "oportId" [observed key];
        OUTPUT_INDEX "oportIndex" [hidden "repeats the id"];
        INPUT_ID "iportId" [observed key];
        INPUT_INDEX "iportIndex" [hidden "repeats the id"];
        OPERATOR "iOperInstanceIndex" [observed];
        OPERATOR_PORT "iOperInstancePortIndex" [observed];
    }
    InputOperator "aug:operInstanceConnection" in ["aug:inputPort"] [observed mark b'c'] {
        OPERATOR "operInstanceIndex" [observed];
        PORT "iportIndex" [observed];
    }
    OutputOperator "aug:operInstanceConnection" in ["aug:outputPort"] [observed mark b'c'] with ChannelAttributes {
        OPERATOR "operInstanceIndex" [observed];
        PORT "oportIndex" [observed];
    }

    // What operators refer to.

    OperDefinitions "aug:operDefinitions" in ["aug:augmentedPE"] [observed mark 4] {}
    OperDefinition "operDefinition" in ["aug:operDefinitions"] [observed mark b'd'] {
        KIND "kind" [observed];
        INDEX "index" [observed key];
        RUNTIME_TYPE "runtimeType" [observed];
    }
    // The runtime knows the element under this spelling.
    CustomMetricIndexes "customMetricIndicies" in ["operDefinition"] [observed] {}
    CustomMetricIndex "customMetricIndex" in ["customMetricIndicies"] [observed mark b'm'] {}

    CustomMetrics "aug:customMetrics" in ["aug:augmentedPE"] [observed mark 5] {}
    CustomMetric "customMetric" in ["aug:customMetrics"] [observed mark b'M'] {
        INDEX "index" [observed key];
        NAME "name" [observed];
        KIND "kind" [observed];
    }
    MetricDescription "description" in ["customMetric"] [observed] {}

    CurrentTracing "aug:currentTracing" in ["aug:augmentedPE"] [observed mark 6] {}
    TracingUpdate "aug:tracingUpdate" in ["aug:currentTracing"] [observed] {
        LEVEL "level" [observed];
    }
    TracingUpdateNumber "aug:tracingUpdateSequenceNum" in ["aug:currentTracing"] [fixed "0"] {}

    ToolkitsMap "aug:toolkitsMap" in ["aug:augmentedPE"] [observed] {}
    ToolkitMap "phy:toolkitMap" in ["aug:toolkitsMap"] [observed mark b'k'] {
        INDEX "index" [observed key];
        NAME "name" [observed];
    }

    Capability "aug:capability" in ["aug:augmentedPE"] [hidden "decided where the pod runs"] {}
}

attributes! {
    /// Attributes of operator ports in both directions.
    PortAttributes {
        INDEX "index" [observed key];
        NAME "name" [observed];
        IS_MUTABLE "isMutable" [observed];
        TUPLE_TYPE_INDEX "tupleTypeIndex" [observed];
    }

    /// Attributes of PE ports in both directions.
    PePortAttributes {
        ID "id" [observed key];
        INDEX "index" [hidden "repeats the id"];
        PE "peId" [hidden "repeats the id of the PE"];
        ENCODING "encoding" [observed];
        TRANSPORT "transport" [observed];
    }

    /// Attributes that say which channel of an output port is meant; absent where the port is taken directly.
    ChannelAttributes {
        SPLITTER "splitterIndex" [observed key mark b'v'];
        CHANNEL "channelIndex" [observed key];
    }
}

#[cfg(test)]
mod tests {
    use super::super::difference::qualified;
    use super::super::element::{AttributeEntry, Observability};
    use super::*;
    use roxmltree::Node;
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    fn project() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The columns "observed" and "why not".
    fn class(class: Observability) -> (String, String) {
        match class {
            Observability::Observed => ("yes".to_owned(), String::new()),
            Observability::ObservedOnly(attribute, values) => {
                (format!("where `{attribute}` is `{}`", values.join("`, `")), "others are for tools".to_owned())
            }
            Observability::ObservedIfConnected => {
                ("where a connection is in the element around it".to_owned(), "others lead nowhere".to_owned())
            }
            Observability::ObservedUnless(what) => {
                (format!("yes, unless {what}"), "the user says that nobody asks".to_owned())
            }
            Observability::Hidden(why) => ("no".to_owned(), why.to_owned()),
            Observability::Fixed("") => ("always empty".to_owned(), String::new()),
            Observability::Fixed(value) => (format!("always `{value}`"), String::new()),
        }
    }

    fn table() -> String {
        let mut text = String::new();
        for VocabularyEntry { name, within, class: of_element, attributes } in ELEMENTS {
            let (observed, why) = class(*of_element);
            let within = within.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            writeln!(text, "| **`{name}`** | {within} | {observed} | {why} |").unwrap();
            for AttributeEntry { name, class: of_attribute, key } in attributes.iter().copied().flatten() {
                let (observed, why) = class(*of_attribute);
                let key = if *key { "key" } else { "" };
                writeln!(text, "| `{name}` | {key} | {observed} | {why} |").unwrap();
            }
        }
        text.lines().map(|line| line.replace("  ", " ") + "\n").collect()
    }

    /// `UPDATE_EXPECT=1` writes the table anew.
    #[test]
    fn the_table_is_documented() {
        const HEAD: &str = "|---|---|---|---|\n";
        let path = project().join("docs/observable.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (prose, _) = text.split_once(HEAD).unwrap();
        expect_test::expect_file![path].assert_eq(&format!("{prose}{HEAD}{}", table()));
    }

    fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                documents(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "xml" || extension == "aadl") {
                found.push(path);
            }
        }
    }

    /// Elements and attributes that the vocabulary does not have where they are.
    fn unknown(node: Node<'_, '_>, known: Option<&VocabularyEntry>, list: &mut Vec<String>) {
        let name = qualified(node);
        let Some(known) = known else {
            list.push(name);
            return;
        };
        let has = |name: &str| known.attributes().any(|attribute| attribute.name.rsplit(':').next() == Some(name));
        list.extend(node.attributes().filter(|a| !has(a.name())).map(|a| format!("{name}/@{}", a.name())));
        for child in node.children().filter(Node::is_element) {
            unknown(child, entry(&name, &qualified(child)), list);
        }
    }

    #[test]
    fn documents_have_nothing_else() {
        let mut paths = Vec::new();
        documents(&project().join("fusion-service/tests/golden"), &mut paths);
        assert!(paths.len() > 10, "where are the examples?");
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            let document = roxmltree::Document::parse(&text).unwrap();
            let mut list = Vec::new();
            unknown(document.root_element(), root(), &mut list);
            assert_eq!(list, [""; 0], "{}", path.display());
        }
    }

    #[test]
    fn every_reason_is_given_once() {
        for VocabularyEntry { name, class, attributes, .. } in ELEMENTS {
            let hidden = matches!(class, Observability::Hidden(_));
            assert_ne!(*class, Observability::Hidden(""), "{name}: why?");
            for attribute in attributes.iter().copied().flatten() {
                // In a hidden element everything is hidden, for its reason.
                let as_element = attribute.class == Observability::Hidden("");
                assert_eq!(hidden, as_element, "{name}/@{}", attribute.name);
            }
        }
    }
}
