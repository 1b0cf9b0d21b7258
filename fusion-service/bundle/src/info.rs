//! The description of a bundle, `bundleInfo.xml` (rule bundle-2).
//!
//! The reader does not look at the namespace of elements, but it checks the attributes. It refuses a document type
//! declaration and entities other than the five of XML.
//!
//! Knows: XML, the elements of the description. Must not know: archives, ADL.

use crate::Error;
use crate::name::{beginning, normalized, shown};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesDecl, BytesStart, Event};
use quick_xml::{Reader, Writer, XmlVersion};

const NAMESPACE: &str = "http://www.ibm.com/xmlns/prod/streams/spl/bundleInfoModel";
/// The elements of the description are four levels deep.
const MAXIMUM_DEPTH: usize = 16;

/// How an application is meant to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionMode {
    /// As processing elements.
    Distributed,
    /// As one process.
    Standalone,
}

impl ExecutionMode {
    fn word(self) -> &'static str {
        match self {
            Self::Distributed => "distributed",
            Self::Standalone => "standalone",
        }
    }
}

/// A toolkit in the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// Its name, also of its folder below `toolkits`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it was when the application was compiled.
    pub compile_root: String,
    /// Its files in the bundle, relative to its folder.
    pub files: Vec<String>,
}

/// The description of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleInfo {
    /// The version of the format, like `4300`.
    pub bundle_version: String,
    /// The SHA-224 of the tar, in lower-case hexadecimal digits.
    pub build_id: String,
    /// Seconds since 1970.
    pub build_date: u64,
    /// The name of the application's toolkit.
    pub application_directory: String,
    /// The top folder in the tar.
    pub output_directory: String,
    /// The ADL, relative to the top folder.
    pub adl_file: String,
    /// How the application is meant to run.
    pub execution_mode: ExecutionMode,
    /// The toolkits in the bundle.
    pub toolkits: Vec<Toolkit>,
    /// Further files, relative to the top folder.
    pub output_files: Vec<String>,
}

impl BundleInfo {
    pub(crate) fn parse(octets: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(octets).map_err(|_| Error::Info("it is not UTF-8".to_owned()))?;
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        let mut info = None;
        // Local names of the elements around the current place.
        let mut path: Vec<String> = Vec::new();
        loop {
            match reader.read_event().map_err(|error| malformed(&reader, error))? {
                Event::Start(start) => {
                    if path.len() >= MAXIMUM_DEPTH {
                        return Err(Error::Info(format!("more than {MAXIMUM_DEPTH} elements within each other")));
                    }
                    path.push(start.local_name().as_ref().to_owned());
                    element(&path, &start, &mut info)?;
                }
                Event::End(_) => _ = path.pop(),
                Event::DocType(_) => return Err(Error::Info("a document type declaration is not allowed".to_owned())),
                Event::Eof if path.is_empty() => break,
                Event::Eof => return Err(Error::Info("it ends within an element".to_owned())),
                _ => {}
            }
        }
        info.ok_or_else(|| Error::Info("there is no element bundleInfoModel".to_owned()))
    }

    /// The path of the ADL in the tar.
    pub(crate) fn adl_path(&self) -> String {
        match self.output_directory.as_str() {
            "" => self.adl_file.clone(),
            directory => format!("{directory}/{}", self.adl_file),
        }
    }

    pub(crate) fn to_xml(&self) -> Result<Vec<u8>, Error> {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None))).map_err(Error::Io)?;
        let build_date = self.build_date.to_string();
        let root = writer.create_element("bundleInfoModel").with_attributes([
            ("xmlns", NAMESPACE),
            ("bundleVersion", &self.bundle_version),
            ("buildId", &self.build_id),
            ("buildDate", &build_date),
            ("applicationDirectory", &self.application_directory),
            ("outputDirectory", &self.output_directory),
            ("adlFile", &self.adl_file),
            ("executionMode", self.execution_mode.word()),
        ]);
        root.write_inner_content(|writer| {
            for toolkit in &self.toolkits {
                let element = writer.create_element("toolkit").with_attributes([
                    ("name", toolkit.name.as_str()),
                    ("version", &toolkit.version),
                    ("compileRoot", &toolkit.compile_root),
                ]);
                write_files(element, &toolkit.files)?;
            }
            if !self.output_files.is_empty() {
                write_files(writer.create_element("output"), &self.output_files)?;
            }
            Ok(())
        })
        .map_err(Error::Io)?;
        let mut xml = writer.into_inner();
        xml.push(b'\n');
        Ok(xml)
    }
}

fn write_files(element: quick_xml::writer::ElementWriter<'_, Vec<u8>>, files: &[String]) -> Result<(), std::io::Error> {
    if files.is_empty() {
        return element.write_empty().map(drop);
    }
    let write = |writer: &mut Writer<Vec<u8>>| {
        files.iter().try_for_each(|file| {
            writer.create_element("file").with_attribute(("name", file.as_str())).write_empty().map(drop)
        })
    };
    element.write_inner_content(write).map(drop)
}

fn malformed(reader: &Reader<&[u8]>, error: quick_xml::Error) -> Error {
    Error::Info(format!("not well-formed at offset {}: {}", reader.error_position(), beginning(error)))
}

/// Takes in the element at the end of a path.
fn element(path: &[String], start: &BytesStart<'_>, info: &mut Option<BundleInfo>) -> Result<(), Error> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match (path.as_slice(), info) {
        (["bundleInfoModel"], info @ None) => *info = Some(root(start)?),
        (["bundleInfoModel", "toolkit"], Some(info)) => {
            let [name, version, compile_root] = attributes(start, ["name", "version", "compileRoot"])?;
            info.toolkits.push(Toolkit { name, version, compile_root, files: Vec::new() });
        }
        (["bundleInfoModel", "toolkit", "file"], Some(info)) => {
            let [name] = attributes(start, ["name"])?;
            if let Some(toolkit) = info.toolkits.last_mut() {
                toolkit.files.push(name);
            }
        }
        (["bundleInfoModel", "output", "file"], Some(info)) => {
            let [name] = attributes(start, ["name"])?;
            info.output_files.push(name);
        }
        ([name], _) => {
            let name = shown(name.as_bytes());
            return Err(Error::Info(format!("the element {name} is not bundleInfoModel, or one of several")));
        }
        _ => {}
    }
    Ok(())
}

fn root(start: &BytesStart<'_>) -> Result<BundleInfo, Error> {
    let names = [
        "bundleVersion",
        "buildId",
        "buildDate",
        "applicationDirectory",
        "outputDirectory",
        "adlFile",
        "executionMode",
    ];
    let [bundle_version, build_id, build_date, application_directory, output_directory, adl_file, mode] =
        attributes(start, names)?;
    let build_date = build_date
        .parse()
        .map_err(|_| Error::Info(format!("buildDate {:?} is no number of seconds", shown(build_date.as_bytes()))))?;
    let execution_mode = match mode.as_str() {
        "distributed" => ExecutionMode::Distributed,
        "standalone" => ExecutionMode::Standalone,
        _ => {
            let mode = shown(mode.as_bytes());
            return Err(Error::Info(format!("executionMode {mode:?} is neither distributed nor standalone")));
        }
    };
    Ok(BundleInfo {
        bundle_version,
        build_id,
        build_date,
        application_directory,
        output_directory: relative("outputDirectory", &output_directory)?,
        adl_file: match relative("adlFile", &adl_file)? {
            file if file.is_empty() => return Err(Error::Info("adlFile is empty".to_owned())),
            file => file,
        },
        execution_mode,
        toolkits: Vec::new(),
        output_files: Vec::new(),
    })
}

/// A path that stays within the bundle.
fn relative(attribute: &str, path: &str) -> Result<String, Error> {
    normalized(path.as_bytes())
        .ok()
        .and_then(|path| String::from_utf8(path).ok())
        .ok_or_else(|| Error::Info(format!("{attribute} {:?} leads out of the bundle", shown(path.as_bytes()))))
}

/// The values of the attributes of these names, all of which have to be there.
fn attributes<const COUNT: usize>(start: &BytesStart<'_>, names: [&str; COUNT]) -> Result<[String; COUNT], Error> {
    let mut values = [const { None }; COUNT];
    for attribute in start.attributes() {
        let attribute: Attribute<'_> = attribute.map_err(|error| Error::Info(beginning(error)))?;
        if let Some(index) = names.iter().position(|name| *name == attribute.key.as_ref()) {
            let value =
                attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| Error::Info(beginning(error)))?;
            values[index] = Some(value.into_owned());
        }
    }
    if let Some(missing) = values.iter().position(Option::is_none) {
        let element = shown(start.local_name().as_ref().as_bytes());
        return Err(Error::Info(format!("the element {element} has no attribute {}", names[missing])));
    }
    Ok(values.map(Option::unwrap_or_default))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <!-- from a compiler --><b:bundleInfoModel xmlns:b="http://www.ibm.com/xmlns/prod/streams/spl/bundleInfoModel"
            bundleVersion="4300" buildId="8640188f" buildDate="1559679588" applicationDirectory="streams.spl.apps"
            outputDirectory="apps.parallel" adlFile="apps.parallel.Parallel.adl" executionMode="distributed" new="&amp;">
          <b:toolkit name="streams.spl.apps" version="1.0.0" compileRoot="../toolkit"><b:file name="toolkit.xml"/><b:file
            name="a&lt;&#x62;"/></b:toolkit>
          <b:toolkit name="spl" version="1.4.0" compileRoot="/opt"></b:toolkit>
          <b:output><b:file name="x/y"/></b:output><b:outputIncludes><b:outputInclude path="*"/></b:outputIncludes>
        </b:bundleInfoModel>"#;

    #[test]
    fn the_whole_description_is_read_and_written() {
        let info = BundleInfo::parse(WHOLE.as_bytes()).unwrap();
        let toolkit = |name: &str, version: &str, root: &str, files: &[&str]| Toolkit {
            name: name.to_owned(),
            version: version.to_owned(),
            compile_root: root.to_owned(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let expected = BundleInfo {
            bundle_version: "4300".to_owned(),
            build_id: "8640188f".to_owned(),
            build_date: 1_559_679_588,
            application_directory: "streams.spl.apps".to_owned(),
            output_directory: "apps.parallel".to_owned(),
            adl_file: "apps.parallel.Parallel.adl".to_owned(),
            execution_mode: ExecutionMode::Distributed,
            toolkits: vec![
                toolkit("streams.spl.apps", "1.0.0", "../toolkit", &["toolkit.xml", "a<b"]),
                toolkit("spl", "1.4.0", "/opt", &[]),
            ],
            output_files: vec!["x/y".to_owned()],
        };
        assert_eq!(info, expected);
        assert_eq!(info.adl_path(), "apps.parallel/apps.parallel.Parallel.adl");
        assert_eq!(BundleInfo::parse(&info.to_xml().unwrap()).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let deep = format!("executionMode=\"distributed\">{}", "<x>".repeat(20));
        let table = [
            (
                "executionMode=\"distributed\"",
                "",
                "bundleInfo.xml: the element bundleInfoModel has no attribute executionMode",
            ),
            (
                "=\"distributed\"",
                "=\"both\"",
                "bundleInfo.xml: executionMode \"both\" is neither distributed nor standalone",
            ),
            ("1559679588", "today", "bundleInfo.xml: buildDate \"today\" is no number of seconds"),
            ("1559679588", "-1", "bundleInfo.xml: buildDate \"-1\" is no number of seconds"),
            ("\"apps.parallel.Parallel.adl\"", "\"../x\"", "bundleInfo.xml: adlFile \"../x\" leads out of the bundle"),
            ("\"apps.parallel.Parallel.adl\"", "\"\"", "bundleInfo.xml: adlFile is empty"),
            ("\"apps.parallel\"", "\"/apps\"", "bundleInfo.xml: outputDirectory \"/apps\" leads out of the bundle"),
            ("compileRoot=\"/opt\"", "", "bundleInfo.xml: the element toolkit has no attribute compileRoot"),
            (
                "b:bundleInfoModel",
                "b:bundle",
                "bundleInfo.xml: the element bundle is not bundleInfoModel, or one of several",
            ),
            ("<!-- from a compiler -->", "<!DOCTYPE x>", "bundleInfo.xml: a document type declaration is not allowed"),
            ("new=\"&amp;\"", "new=\"\" new=\"\"", "duplicated attribute"),
            ("4300", "&x;", "at 1..2: unrecognized entity `x`"),
            ("</b:bundleInfoModel>", "", "bundleInfo.xml: it ends within an element"),
            (
                "</b:bundleInfoModel>",
                "</b:bundleInfoModel><b/>",
                "bundleInfo.xml: the element b is not bundleInfoModel",
            ),
            ("</b:toolkit>", "</toolkit>", "bundleInfo.xml: not well-formed at offset"),
            (
                "executionMode=\"distributed\" new=\"&amp;\">",
                &deep,
                "bundleInfo.xml: more than 16 elements within each other",
            ),
        ];
        for (from, to, message) in table {
            let error = BundleInfo::parse(WHOLE.replace(from, to).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(message), "{from} as {to}: {error}");
        }
        let long = "x".repeat(1 << 20);
        for description in [format!("<{long}/>"), format!("<a></{long}>"), WHOLE.replace("4300", &format!("&{long};"))]
        {
            let error = BundleInfo::parse(description.as_bytes()).unwrap_err().to_string();
            assert!(error.len() < 500, "{error}");
        }
        assert!(BundleInfo::parse(b"").unwrap_err().to_string().contains("there is no element bundleInfoModel"));
        assert!(BundleInfo::parse(b"\xff").unwrap_err().to_string().contains("it is not UTF-8"));
    }
}
