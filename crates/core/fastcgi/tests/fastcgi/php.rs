//! php-fpm.
