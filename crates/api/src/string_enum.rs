//! Enumerations that travel as strings and keep values they do not know.

/// Declares an enumeration with a wire text for each variant and an `Unrecognized` variant.
///
/// `"A" | "a"` reads both texts and writes the first. `default X` adds `Default`, and reads the
/// empty string, which Go writes for an unset field without `omitempty`, as `X`.
macro_rules! string_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal $(| $alias:literal)* ),+ $(,)?
        }
        $(default $default:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
            /// A value this version does not know, kept as it was read.
            Unrecognized(String),
        }

        impl $name {
            /// The texts that the API server accepts, aliases included.
            pub const KNOWN: &'static [&'static str] = &[$($text $(, $alias)*),+];

            /// The text on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Unrecognized(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $text $(| $alias)* => Self::$variant, )+
                    $( "" => Self::$default, )?
                    other => Self::Unrecognized(other.to_owned()),
                }
            }
        }

        $(
            impl Default for $name {
                fn default() -> Self {
                    Self::$default
                }
            }
        )?

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(text.as_str()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::work::{DeletePropagationPolicyType, FeedBackType, FeedbackScrapeType};

    fn read(text: &str) -> FeedbackScrapeType {
        serde_json::from_value(text.into()).unwrap()
    }

    #[test]
    fn both_spellings_of_the_scrape_type_are_read_and_the_shipped_one_is_written() {
        for text in ["Watch", "WATCH"] {
            assert_eq!(read(text), FeedbackScrapeType::Watch);
        }
        for text in ["Poll", "POLL", ""] {
            assert_eq!(read(text), FeedbackScrapeType::Poll);
        }
        assert_eq!(serde_json::to_value(read("WATCH")).unwrap(), "Watch");
        assert_eq!(serde_json::to_value(read("POLL")).unwrap(), "Poll");
        assert_eq!(
            FeedbackScrapeType::KNOWN,
            ["Poll", "POLL", "Watch", "WATCH"]
        );
    }

    #[test]
    fn other_text_is_kept() {
        assert_eq!(
            read("wAtCh"),
            FeedbackScrapeType::Unrecognized("wAtCh".to_owned())
        );
        assert_eq!(serde_json::to_value(read("wAtCh")).unwrap(), "wAtCh");
    }

    #[test]
    fn empty_text_is_the_default_where_there_is_one() {
        assert_eq!(
            DeletePropagationPolicyType::from(""),
            DeletePropagationPolicyType::Foreground
        );
        assert_eq!(
            FeedBackType::from(""),
            FeedBackType::Unrecognized(String::new())
        );
    }

    #[test]
    fn value_that_is_no_string_is_an_error() {
        let error = serde_json::from_str::<FeedbackScrapeType>("1").unwrap_err();
        assert!(error.to_string().contains("expected a string"), "{error}");
    }
}
