//! Well-formed documents, and many malformed ones.

use super::*;

/// Reads everything and tells what was there, or the first error.
fn read(document: &[u8]) -> Result<String, String> {
    let budget = Budget::default();
    let mut events = String::new();
    let mut go = || -> Result<(), Error> {
        let mut reader = Reader::new(document, &budget)?;
        let root = reader.root()?;
        write_element(&mut events, &root);
        let mut depth = 1;
        while depth > 0 {
            match reader.token()? {
                Token::Start(element) => {
                    write_element(&mut events, &element);
                    depth += 1;
                }
                Token::End => {
                    events.push('/');
                    depth -= 1;
                }
                Token::Text(text) => events.push_str(&format!("'{text}'")),
                Token::Eof => break,
            }
        }
        reader.finish()
    };
    go().map_err(|e| e.to_string())?;
    Ok(events)
}

fn write_element(events: &mut String, element: &XmlElement<'_>) {
    events.push_str(&format!("<{}", element.name));
    for (name, value) in &element.attributes {
        events.push_str(&format!(" {name}={value}"));
    }
    events.push('>');
}

#[test]
fn well_formed_documents_are_read() {
    for (document, expected) in [
        ("<a/>", "<a>/"),
        (
            "\u{feff}<?xml version='1.0' encoding='utf-8' standalone=\"no\"?>\n<!-- c --><a b = '1'\tc=\"2\" ></a >\n<?p x?>",
            "<a b=1 c=2>/",
        ),
        ("<a>x&lt;&#65;&#x42;<![CDATA[<&]]>\r\ny</a>", "<a>'x''<''A''B''<&''\ny'/"),
        ("<a b='&quot;&apos;&amp;&#10; \n\r\n\t.'/>", "<a b=\"'&\n    .>/"),
        ("<p:a xmlns:p='u' p:b='1' c='2' xml:lang='en'><p:d/></p:a>", "<a c=2><d>//"),
        ("<é/>", "<é>/"),
    ] {
        assert_eq!(read(document.as_bytes()).as_deref(), Ok(expected), "{document}");
    }
}

#[test]
fn malformed_documents_are_refused_with_code_and_place() {
    let deep = "<a>".repeat(300);
    let attributes: String = (0..40).map(|i| format!(" a{}='1'", i % 39)).collect();
    for document in [
        "",
        "  ",
        "x",
        "<a>",
        "<a></b>",
        "<a/><b/>",
        "<a/>x",
        "x<a/>",
        "<a/><![CDATA[x]]>",
        "<a b/>",
        "<a b=1/>",
        "<a b='1' b='2'/>",
        "<a b='1'c='2'/>",
        "<a b='<'/>",
        "<a b='&'/>",
        "<a b='&x;'/>",
        "<a b='&#0;'/>",
        "<a>&x;</a>",
        "<a>&#x0;</a>",
        "<a>&#xffff;</a>",
        "<a>& </a>",
        "<a>]]></a>",
        "<a>\u{1}</a>",
        "<a>\u{ffff}</a>",
        "<a><!-- -- --></a>",
        "<1/>",
        "< a/>",
        "<a:b/>",
        "<a x:b='1'/>",
        "<a:b:c xmlns:a='u'/>",
        " <?xml version='1.0'?><a/>",
        "<?xml version='2.0'?><a/>",
        "<?xml encoding='UTF-8'?><a/>",
        "<?xml version='1.0' encoding='UTF-16'?><a/>",
        "<!DOCTYPE a><a/>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        "<a></a",
        "<a",
        "<a b='",
        &deep,
        &format!("<a{attributes}/>"),
    ] {
        let error = read(document.as_bytes()).expect_err(document);
        assert!(error.contains("CDISA5089E"), "{document}: {error}");
        assert!(error.as_bytes()[0].is_ascii_digit(), "no place: {error}");
    }
    assert!(read(b"<a>\xff</a>").unwrap_err().contains("UTF-8"));
}

#[test]
fn places_count_lines_and_columns_from_one() {
    let error = read("<a>\n  <b/>\n\n    <c x='1' x='2'/></a>".as_bytes()).unwrap_err();
    assert!(error.starts_with("4:5: "), "{error}");
}

#[test]
fn attributes_of_one_element_are_counted() {
    let document = |count: usize| {
        let attributes: String = (0..count).map(|number| format!(" a{number}=''")).collect();
        format!("<a{attributes}/>")
    };
    assert!(read(document(MOST_ATTRIBUTES).as_bytes()).is_ok());
    let error = read(document(MOST_ATTRIBUTES + 1).as_bytes()).unwrap_err();
    assert!(error.contains("<a>: more than 10000 attributes"), "{error}");
    // Each is looked at within the budget.
    let (document, cancelled) = (document(9_000), Budget::cancelled());
    let root = Reader::new(document.as_bytes(), &cancelled).and_then(|mut reader| reader.root().map(|_| ()));
    assert_eq!(root, Err(Error::Cancelled));
}

#[test]
fn limits_hold() {
    let budget = Budget::with_limits(Limits { adl_bytes: 100, text_bytes: 10, ..Limits::default() });
    let read = |document: &str| {
        let mut reader = Reader::new(document.as_bytes(), &budget)?;
        reader.root()?;
        reader.text().map(Cow::into_owned)
    };
    assert_eq!(read("<a>123</a>").unwrap(), "123");
    assert!(read(&format!("<a>{}</a>", "x".repeat(200))).is_err());
    assert!(read("<a>12345678901</a>").is_err());
    assert!(read("<a>1234567&lt;90<![CDATA[1]]></a>").is_err());
    assert!(read("<a b='12345678901'/>").is_err());
    for document in ["<a234567890/>", "<a><b234567890/></a>", "<a b234567890=''/>", "<a><?b234567890 ?></a>"] {
        assert!(read(document).is_ok(), "{document}");
        let error = read(&document.replace("90", "901")).expect_err(document).to_string();
        assert!(error.contains("more than 10 bytes"), "{document}: {error}");
    }
}
