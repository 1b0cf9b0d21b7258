//! The types of the entries of the [`super::vocabulary`], for the writer and for readers.
//!
//! For the writer, an element is a type, and its attributes are constants of that type. So an attribute can only be
//! written where it belongs, and its class is known when the writer is compiled. For all other code the same entries
//! form a table of [`VocabularyEntry`].
//!
//! Knows: what can be said of an element. Must not know: which elements there are.

use std::marker::PhantomData;

/// Whether a running PE can observe an element or an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observability {
    /// It can.
    Observed,
    /// It can if this attribute has one of these values. Otherwise the element is hidden.
    ObservedOnly(&'static str, &'static [&'static str]),
    /// It can if a connection is somewhere in the element around it. Otherwise the element is hidden.
    ObservedIfConnected,
    /// It can, unless the job says something.
    ObservedUnless(&'static str),
    /// It cannot, and why.
    Hidden(&'static str),
    /// The value, or the text, is the same in every document.
    Fixed(&'static str),
}

/// An element of the table.
#[derive(Debug)]
pub(super) struct VocabularyEntry {
    /// Name, with the prefix that documents use.
    pub(super) name: &'static str,
    /// Names of the elements that it can be in.
    pub(super) within: &'static [&'static str],
    pub(super) class: Observability,
    /// Its own attributes, then those that it has in common with others.
    pub(super) attributes: &'static [&'static [AttributeEntry]],
}

/// An attribute of the table.
#[derive(Debug)]
pub(super) struct AttributeEntry {
    pub(super) name: &'static str,
    pub(super) class: Observability,
    /// Whether it says which of several siblings its element is.
    pub(super) key: bool,
}

impl VocabularyEntry {
    pub(super) fn attributes(&self) -> impl Iterator<Item = &'static AttributeEntry> + use<> {
        self.attributes.iter().copied().flatten()
    }

    /// Attributes that say which of several siblings it is.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.attributes().filter(|attribute| attribute.key).map(|attribute| attribute.name)
    }
}

/// An element that the writer can begin and end.
pub(super) trait Element {
    /// `<name`.
    const START: &'static [u8];
    /// `<name>`.
    const OPEN: &'static [u8];
    /// `<name/>`.
    const EMPTY: &'static [u8];
    /// `</name>`.
    const END: &'static [u8];
    /// Whether something inside it may be observed.
    const OBSERVED: bool;
    /// What begins it in the observed stream.
    const MARK: Option<u8>;
}

/// An element that is the same in every document.
pub(super) trait FixedElement {
    const TEXT: &'static [u8];
}

/// Says that an element has attributes of `G`, which it has in common with others.
pub(super) trait HasAttributes<G> {}

impl<E: Element> HasAttributes<E> for E {}

/// An attribute of `E`, which is an element or what several elements have in common.
pub(super) struct ElementAttribute<E> {
    /// ` name="`.
    pub(super) start: &'static [u8],
    pub(super) observed: bool,
    /// What announces it in the observed stream.
    pub(super) mark: Option<u8>,
    pub(super) of: PhantomData<E>,
}

impl<E> Clone for ElementAttribute<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for ElementAttribute<E> {}

/// An attribute of `E` that has the same value in every document.
pub(super) struct FixedAttribute<E> {
    /// ` name="value"`.
    pub(super) text: &'static [u8],
    pub(super) of: PhantomData<E>,
}

/// Makes the types of elements, and the table.
macro_rules! elements {
    ($(
        $element:ident $name:literal in [$($parent:literal),*] [$($class:tt)*] $(with $group:ident)? {
            $($attribute:ident $attribute_name:literal [$($attribute_class:tt)*];)*
        }
    )*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub(super) struct $element;

            $crate::aadl::element::element!($element $name [$($class)*]);

            $(impl $crate::aadl::element::HasAttributes<$group> for $element {})?

            impl $element {
                $($crate::aadl::element::attribute!($attribute $attribute_name [$($attribute_class)*]);)*
            }
        )*

        /// All elements, in the order of a document.
        pub(super) static ELEMENTS: &[$crate::aadl::element::VocabularyEntry] = &[$(
            $crate::aadl::element::VocabularyEntry {
                name: $name,
                within: &[$($parent),*],
                class: $crate::aadl::element::class!(@class $($class)*),
                attributes: &[
                    &[$($crate::aadl::element::entry!($attribute_name [$($attribute_class)*])),*],
                    $(&$group::ENTRIES)?
                ],
            }
        ),*];
    };
}

/// Makes types of attributes that several elements have in common.
macro_rules! attributes {
    ($(
        #[doc = $doc:literal]
        $group:ident { $($attribute:ident $name:literal [$($class:tt)*];)* }
    )*) => {$(
        #[doc = $doc]
        pub(super) struct $group;

        impl $crate::aadl::element::HasAttributes<$group> for $group {}

        impl $group {
            $($crate::aadl::element::attribute!($attribute $name [$($class)*]);)*

            const ENTRIES: &'static [$crate::aadl::element::AttributeEntry] =
                &[$($crate::aadl::element::entry!($name [$($class)*])),*];
        }
    )*};
}

macro_rules! element {
    ($element:ident $name:literal [fixed ""]) => {
        impl $crate::aadl::element::FixedElement for $element {
            const TEXT: &'static [u8] = concat!("<", $name, "/>").as_bytes();
        }
    };
    ($element:ident $name:literal [fixed $text:literal]) => {
        impl $crate::aadl::element::FixedElement for $element {
            const TEXT: &'static [u8] = concat!("<", $name, ">", $text, "</", $name, ">").as_bytes();
        }
    };
    ($element:ident $name:literal [$($class:tt)*]) => {
        impl $crate::aadl::element::Element for $element {
            const START: &'static [u8] = concat!("<", $name).as_bytes();
            const OPEN: &'static [u8] = concat!("<", $name, ">").as_bytes();
            const EMPTY: &'static [u8] = concat!("<", $name, "/>").as_bytes();
            const END: &'static [u8] = concat!("</", $name, ">").as_bytes();
            const OBSERVED: bool = $crate::aadl::element::class!(@observed $($class)*);
            const MARK: Option<u8> = $crate::aadl::element::class!(@mark $($class)*);
        }
    };
}

macro_rules! attribute {
    ($attribute:ident $name:literal [fixed $value:literal]) => {
        pub(super) const $attribute: $crate::aadl::element::FixedAttribute<Self> = $crate::aadl::element::FixedAttribute {
            text: concat!(" ", $name, "=\"", $value, "\"").as_bytes(),
            of: std::marker::PhantomData,
        };
    };
    ($attribute:ident $name:literal [$($class:tt)*]) => {
        pub(super) const $attribute: $crate::aadl::element::ElementAttribute<Self> = $crate::aadl::element::ElementAttribute {
            start: concat!(" ", $name, "=\"").as_bytes(),
            observed: $crate::aadl::element::class!(@observed $($class)*),
            mark: $crate::aadl::element::class!(@mark $($class)*),
            of: std::marker::PhantomData,
        };
    };
}

macro_rules! entry {
    ($name:literal [$($class:tt)*]) => {
        $crate::aadl::element::AttributeEntry {
            name: $name,
            class: $crate::aadl::element::class!(@class $($class)*),
            key: $crate::aadl::element::class!(@key $($class)*),
        }
    };
}

/// Reads the class of an entry.
macro_rules! class {
    (@class observed $(key)? $(mark $mark:literal)?) => {
        $crate::aadl::element::Observability::Observed
    };
    (@class observed only $attribute:literal in $values:ident) => {
        $crate::aadl::element::Observability::ObservedOnly($attribute, $values)
    };
    (@class observed if connected $(mark $mark:literal)?) => {
        $crate::aadl::element::Observability::ObservedIfConnected
    };
    (@class observed unless $what:literal) => {
        $crate::aadl::element::Observability::ObservedUnless($what)
    };
    (@class hidden $(key)?) => {
        $crate::aadl::element::Observability::Hidden("")
    };
    (@class hidden $(key)? $why:literal) => {
        $crate::aadl::element::Observability::Hidden($why)
    };
    (@class fixed $value:literal) => {
        $crate::aadl::element::Observability::Fixed($value)
    };
    (@observed observed $($rest:tt)*) => {
        true
    };
    (@observed hidden $($rest:tt)*) => {
        false
    };
    (@mark observed $(key)? mark $mark:literal) => {
        Some($mark)
    };
    (@mark observed if connected mark $mark:literal) => {
        Some($mark)
    };
    (@mark $($rest:tt)*) => {
        None
    };
    (@key observed key $($rest:tt)*) => {
        true
    };
    (@key hidden key $($rest:tt)*) => {
        true
    };
    (@key $($rest:tt)*) => {
        false
    };
}

pub(super) use {attribute, attributes, class, element, elements, entry};
