# LIMB_ADD_FLAGS(VARIABLE, FLAGS)
# Appends to VARIABLE each of FLAGS that the compiler takes without a warning.
# A -Wno-x is probed as -Wx, because gcc accepts every -Wno- silently.
AC_DEFUN([LIMB_ADD_FLAGS], [
for limb_flag in m4_normalize([$2]); do
	AC_MSG_CHECKING([whether $CC accepts $limb_flag])
	limb_saved_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -Werror `AS_ECHO(["$limb_flag"]) | sed 's/^-Wno-/-W/'`"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
		[AC_MSG_RESULT([yes])
		AS_VAR_APPEND([$1], [" $limb_flag"])],
		[AC_MSG_RESULT([no])])
	CFLAGS=$limb_saved_CFLAGS
done])

# LIMB_MISSING(WHAT, DEBIAN-PACKAGE)
# Notes something that the build cannot do without; LIMB_REPORT_MISSING ends
# configure with all of them in one sentence.
AC_DEFUN([LIMB_MISSING], [
	AS_VAR_APPEND([limb_missing], ["${limb_missing:+, }$1"])
	AS_VAR_APPEND([limb_missing_packages], [" $2"])
])

AC_DEFUN([LIMB_REPORT_MISSING], [
	AS_IF([test -n "$limb_missing"],
		[AC_MSG_ERROR([missing: $limb_missing (on Debian: apt-get install$limb_missing_packages)])])
])

# LIMB_PKG(PREFIX, MODULE, DEBIAN-PACKAGE)
# Sets PREFIX_CFLAGS and PREFIX_LIBS from pkg-config.
AC_DEFUN([LIMB_PKG], [
	PKG_CHECK_MODULES([$1], [$2], [], [LIMB_MISSING([$2], [$3])])
])

# LIMB_LIB(PREFIX, HEADER, LIBRARY, FUNCTION, DEBIAN-PACKAGE)
# Sets PREFIX_LIBS for a library that has no pkg-config file.
AC_DEFUN([LIMB_LIB], [
	limb_found=yes
	AC_CHECK_HEADER([$2], [], [limb_found=no], [#include <stdio.h>
#include <stdint.h>])
	AC_CHECK_LIB([$3], [$4], [$1_LIBS=-l$3], [limb_found=no])
	AS_IF([test $limb_found = no], [LIMB_MISSING([lib$3], [$5])])
	AC_SUBST([$1_LIBS])
])

# LIMB_STATIC_LIB(VARIABLE, ARCHIVE, FUNCTION, DEBIAN-PACKAGE, [OTHER-LIBS], [LINK-FLAGS])
# Sets VARIABLE to -l:ARCHIVE if FUNCTION links from it.
AC_DEFUN([LIMB_STATIC_LIB], [
	AC_CACHE_CHECK([for $3 in $2], [limb_cv_static_$1], [
		limb_saved_LIBS=$LIBS
		limb_saved_LDFLAGS=$LDFLAGS
		LIBS="-l:$2 $5 $LIBS"
		LDFLAGS="$LDFLAGS $6"
		AC_LINK_IFELSE([AC_LANG_CALL([], [$3])],
			[limb_cv_static_$1=yes], [limb_cv_static_$1=no])
		LIBS=$limb_saved_LIBS
		LDFLAGS=$limb_saved_LDFLAGS
	])
	AS_IF([test $limb_cv_static_$1 = yes], [$1=-l:$2], [LIMB_MISSING([$2], [$4])])
])
