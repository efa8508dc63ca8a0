//! ConfigMap: every entry is the manifest's, save for certificates that the cluster injects.

use super::{Object, Rule, entries, keep, metadata_text};

/// Where OpenShift puts the certificates that the cluster trusts, into a ConfigMap that asks for
/// them by [`TRUSTED_CA_LABEL`].
const TRUSTED_CA: &str = "ca-bundle.crt";
const TRUSTED_CA_LABEL: &str = "config.openshift.io/inject-trusted-cabundle";

/// Where OpenShift puts the certificate that signs those of Services, into a ConfigMap that asks
/// for it by [`SERVICE_CA_ANNOTATION`].
const SERVICE_CA: &str = "service-ca.crt";
const SERVICE_CA_ANNOTATION: &str = "service.beta.openshift.io/inject-cabundle";

/// An immutable ConfigMap is not made anew: the server's refusal tells the user.
#[derive(Debug)]
pub(super) struct ConfigMap;

impl Rule for ConfigMap {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        keep(wanted, live, "immutable");
        let asks = |field, key| metadata_text(wanted, field, key) == Some("true");
        let trusted = asks("labels", TRUSTED_CA_LABEL);
        let service = asks("annotations", SERVICE_CA_ANNOTATION);
        let injected = live.get("data").and_then(|data| data.as_object());
        let Some(injected) = injected.filter(|_| trusted || service) else {
            return;
        };
        let Some(data) = entries(wanted, "data") else {
            return;
        };
        if trusted {
            keep(data, injected, TRUSTED_CA);
        }
        if service && let Some(certificate) = injected.get(SERVICE_CA) {
            // Whatever the manifest says would be overwritten again.
            data.insert(SERVICE_CA.into(), certificate.clone());
        }
    }

    fn owned(&self) -> &'static [&'static str] {
        &["data", "binaryData"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kept(wanted: &Value, live: &Value) -> Value {
        let mut wanted = wanted.as_object().unwrap().clone();
        ConfigMap.keep(&mut wanted, live.as_object().unwrap());
        wanted.remove("data").unwrap_or_default()
    }

    #[test]
    fn injected_certificates_stay_where_they_were_asked_for() {
        let live = json!({"data": {"ca-bundle.crt": "C", "service-ca.crt": "S", "other": "x"}});
        let label = json!({"labels": {TRUSTED_CA_LABEL: "true"}});
        let annotation = json!({"annotations": {SERVICE_CA_ANNOTATION: "true"}});
        for (metadata, data, expected) in [
            (
                &label,
                json!({"k": "v"}),
                json!({"k": "v", "ca-bundle.crt": "C"}),
            ),
            (&label, json!(null), json!({"ca-bundle.crt": "C"})),
            (
                &label,
                json!({"ca-bundle.crt": "M"}),
                json!({"ca-bundle.crt": "M"}),
            ),
            (
                &annotation,
                json!({"k": "v"}),
                json!({"k": "v", "service-ca.crt": "S"}),
            ),
            (
                &annotation,
                json!({"service-ca.crt": "M"}),
                json!({"service-ca.crt": "S"}),
            ),
            (&json!({}), json!({"k": "v"}), json!({"k": "v"})),
            (
                &json!({"labels": {TRUSTED_CA_LABEL: "false"}}),
                json!({"k": "v"}),
                json!({"k": "v"}),
            ),
        ] {
            let wanted = json!({"metadata": metadata, "data": data});
            assert_eq!(kept(&wanted, &live), expected, "{wanted}");
        }
        let wanted = json!({"metadata": annotation, "data": {"service-ca.crt": "M"}});
        assert_eq!(
            kept(&wanted, &json!({"data": {}})),
            json!({"service-ca.crt": "M"})
        );
        assert_eq!(kept(&wanted, &json!({})), json!({"service-ca.crt": "M"}));
        let odd = json!({"metadata": annotation, "data": "text"});
        assert_eq!(kept(&odd, &live), "text", "left to the server to refuse");
    }
}
