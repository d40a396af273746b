//! Variables by which users move the places of their secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Variables;

/// A place in the home that a variable has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MovedPlace {
    /// The usual place.
    pub(crate) usual: PathBuf,
    /// The place by the variable.
    pub(crate) actual: PathBuf,
}

/// Variables, and the usual places below the home of what they name.
#[rustfmt::skip]
const MOVED: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share"), ("XDG_CACHE_HOME", ".cache"),
    ("XDG_STATE_HOME", ".local/state"),
    ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), ("AWS_CONFIG_FILE", ".aws/config"),
    ("AZURE_CONFIG_DIR", ".azure"), ("CLOUDSDK_CONFIG", ".config/gcloud"), ("OCI_CLI_CONFIG_FILE", ".oci/config"),
    ("GOOGLE_APPLICATION_CREDENTIALS", ".config/gcloud/application_default_credentials.json"),
    ("KUBECONFIG", ".kube/config"), ("DOCKER_CONFIG", ".docker"), ("REGISTRY_AUTH_FILE", ".config/containers/auth.json"),
    ("HELM_CONFIG_HOME", ".config/helm"), ("HELM_REGISTRY_CONFIG", ".config/helm/registry/config.json"),
    ("TF_CLI_CONFIG_FILE", ".terraformrc"), ("PULUMI_HOME", ".pulumi"), ("FLY_CONFIG_DIR", ".fly"),
    ("RCLONE_CONFIG", ".config/rclone/rclone.conf"), ("BOTO_CONFIG", ".boto"), ("DOPPLER_CONFIG_DIR", ".doppler"),
    ("GNUPGHOME", ".gnupg"), ("PASSWORD_STORE_DIR", ".password-store"), ("SOPS_AGE_KEY_FILE", ".config/sops/age/keys.txt"),
    ("BITWARDENCLI_APPDATA_DIR", ".config/Bitwarden CLI"), ("OP_CONFIG_DIR", ".config/op"),
    ("ANSIBLE_VAULT_PASSWORD_FILE", ".vault_pass"), ("NETRC", ".netrc"), ("WGETRC", ".wgetrc"),
    ("GIT_CONFIG_GLOBAL", ".gitconfig"), ("GH_CONFIG_DIR", ".config/gh"), ("GLAB_CONFIG_DIR", ".config/glab-cli"),
    ("PGPASSFILE", ".pgpass"), ("PGSERVICEFILE", ".pg_service.conf"), ("MYSQL_TEST_LOGIN_FILE", ".mylogin.cnf"),
    ("DATABRICKS_CONFIG_FILE", ".databrickscfg"), ("SNOWFLAKE_HOME", ".snowflake"), ("DBT_PROFILES_DIR", ".dbt"),
    ("NPM_CONFIG_USERCONFIG", ".npmrc"), ("npm_config_userconfig", ".npmrc"), ("CARGO_HOME", ".cargo"),
    ("PIP_CONFIG_FILE", ".config/pip/pip.conf"), ("UV_CREDENTIALS_DIR", ".local/share/uv/credentials"),
    ("UV_CONFIG_FILE", ".config/uv/uv.toml"), ("GRADLE_USER_HOME", ".gradle"), ("COMPOSER_HOME", ".config/composer"),
    ("BUNDLE_USER_CONFIG", ".bundle/config"), ("HF_HOME", ".cache/huggingface"),
    ("HF_TOKEN_PATH", ".cache/huggingface/token"), ("KAGGLE_CONFIG_DIR", ".kaggle"),
    ("WANDB_CONFIG_DIR", ".config/wandb"), ("JUPYTER_CONFIG_DIR", ".jupyter"),
    ("JUPYTER_RUNTIME_DIR", ".local/share/jupyter/runtime"), ("XAUTHORITY", ".Xauthority"),
    ("HISTFILE", ".bash_history"), ("PYTHON_HISTORY", ".python_history"), ("PSQL_HISTORY", ".psql_history"),
    ("MYSQL_HISTFILE", ".mysql_history"), ("SQLITE_HISTORY", ".sqlite_history"), ("LESSHISTFILE", ".lesshst"),
    ("NODE_REPL_HISTORY", ".node_repl_history"), ("REDISCLI_HISTFILE", ".rediscli_history"),
];

impl Variables {
    /// The places in `home` that variables of the process have moved, but for those whose variable `kernel` has too: code is
    /// meant to use them.
    pub(crate) fn moved_places(&self, home: &Path, kernel: &BTreeMap<String, String>) -> Vec<MovedPlace> {
        let named = MOVED.iter().filter(|(name, _)| !kernel.contains_key(*name));
        let values = named.filter_map(|(name, usual)| Some((self.in_process(name)?, home.join(usual))));
        // `KUBECONFIG` is a list.
        let paths = values.flat_map(|(value, usual)| {
            std::env::split_paths(value)
                .map(move |actual| MovedPlace { usual: usual.clone(), actual })
                .collect::<Vec<_>>()
        });
        // A device is named so that there is no file.
        let is_file = |place: &MovedPlace| place.actual.is_absolute() && !place.actual.starts_with("/dev");
        paths.filter(|place| is_file(place) && place.actual != place.usual).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_where_variables_have_moved_them() {
        let variables = Variables::from_pairs([
            ("KUBECONFIG", "/a/config:/h/.kube/config:/b"),
            ("XDG_CONFIG_HOME", "relative"),
            ("NETRC", "/n"),
            ("PIP_CONFIG_FILE", "/dev/null"),
            ("GNUPGHOME", ""),
            ("HF_HOME", "/models"),
        ]);
        let kernel = BTreeMap::from([("HF_HOME".to_owned(), "/models".to_owned())]);
        let moved = variables.moved_places(Path::new("/h"), &kernel);
        let shown: Vec<String> = moved
            .iter()
            .map(|place| format!("{} → {}", place.usual.display(), place.actual.display()))
            .collect();
        assert_eq!(shown, ["/h/.kube/config → /a/config", "/h/.kube/config → /b", "/h/.netrc → /n"]);
    }
}
