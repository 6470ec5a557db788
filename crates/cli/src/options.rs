//! Errors in a config made from options: they are reported with the names of the options, since the user has
//! not seen the config.

use skep_config::{Config, ConfigErrors};

/// Checks a config made from options; `names` maps settings to options.
///
/// # Errors
/// Names each invalid option.
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
