//! Errors in options that became a config: reported by the options' names, since the user has not
//! seen that config.

use skep_config::{Config, ConfigErrors};

/// Checks a config that was made of options, whose names `names` gives for settings.
///
/// # Errors
/// Names each option that is wrong.
pub fn check(config: &Config, names: &[(&str, &str)]) -> anyhow::Result<()> {
    config.validate().map_err(|errors| anyhow::anyhow!("{}", told(&errors, names)))
}

fn told(errors: &ConfigErrors, names: &[(&str, &str)]) -> String {
    let line = |error: &skep_config::ConfigError| {
        let option = names.iter().find(|(setting, _)| *setting == error.setting);
        let what = option.map_or(error.setting.as_str(), |(_, option)| option);
        let hint = error.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
        format!("{what}: expected {}, found {}{hint}", error.expected, error.found)
    };
    errors.errors.iter().map(line).collect::<Vec<_>>().join("\n")
}
