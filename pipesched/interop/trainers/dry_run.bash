# Loaded first by every bash of a dry run: recorders in place of programs. `dry_run.py` adds a function a program.
__pipesched_record() {
  local name=$1 n; shift
  local words=("$@")
  case " $__PIPESCHED_PYTHONS " in *" $name "*) ;; *)
    for n in "${!words[@]}"; do
      case "${words[n]##*/}" in
        bash|sh|dash|zsh) __pipesched_shell "$name" "$n" "$@"; return 0 ;;
        *.sh|*.slurm|*.sbatch)
          if [ -f "${words[n]}" ]; then
            __PIPESCHED_BEFORE="$__PIPESCHED_BEFORE$(printf '%s\036' "$name" "${words[@]:0:n}")" \
              "$BASH" "${words[@]:n}"
            return 0
          fi ;;
      esac
    done ;;
  esac
  local file="$__PIPESCHED_RECORDS/$EPOCHREALTIME-$BASHPID-$RANDOM"
  { printf '%s' "$__PIPESCHED_BEFORE" | tr '\036' '\0'; printf '%s\0' "$name" "$@"; } > "$file"
  printf '%s\n' "$__PIPESCHED_UNKNOWN"
  return 0
}
__pipesched_shell() {
  local name=$1 n=$2; shift 2
  local words=("$@")
  __PIPESCHED_BEFORE="$__PIPESCHED_BEFORE$(printf '%s\036' "$name" "${words[@]:0:n}")" "$BASH" "${words[@]:n+1}"
}
__pipesched_asked() { : > "$__PIPESCHED_RECORDS/asked-$1"; printf '%s\n' "$__PIPESCHED_UNKNOWN"; }
__pipesched_is_program() {
  case "$1" in */*) ;; *) return 1 ;; esac
  case " $__PIPESCHED_PROGRAMS " in *" ${1##*/} "*) return 0 ;; *) return 1 ;; esac
}
__pipesched_debug() {
  shopt -s extdebug 2>/dev/null
  set -T +eu
  local __pipesched_c=$BASH_COMMAND __pipesched_f
  while [[ $__pipesched_c =~ $__PIPESCHED_ASSIGNED ]]; do
    __pipesched_c=${__pipesched_c:${#BASH_REMATCH[0]}}
  done
  __pipesched_f=${__pipesched_c%%[[:space:]]*}
  case "$__pipesched_f" in *'$('*|*'`'*|*=*|'[['*|'(('*) return 0 ;; *'$'*|*/*) ;; *) return 0 ;; esac
  eval "__pipesched_f=($__pipesched_f)" 2>/dev/null || return 0
  if __pipesched_is_program "${__pipesched_f[0]-}"; then eval "__pipesched_record $__pipesched_c"; return 1; fi
  if __pipesched_is_shell "${__pipesched_f[0]-}"; then eval "__pipesched_other $__pipesched_c"; return 1; fi
}
__pipesched_is_shell() {
  local first
  case "$1" in */sh|*/dash|*/zsh|*/ksh) return 0 ;; */*) ;; *) return 1 ;; esac
  [ -f "$1" ] && [ -r "$1" ] && IFS= read -r first < "$1" && case "$first" in '#!'*sh|'#!'*sh' '*) return 0 ;; esac
  return 1
}
__pipesched_other() {
  case "$1" in */sh|*/dash|*/zsh|*/ksh) shift ;; esac
  "$BASH" "$@"
}
__pipesched_run() { if __pipesched_is_program "$1"; then __pipesched_record "$@"; else "$@"; fi; }
cd() { builtin cd "$@" 2>/dev/null || true; }
pushd() { builtin pushd "$@" >/dev/null 2>&1 || true; }
popd() { builtin popd "$@" >/dev/null 2>&1 || true; }
source() { if [ -f "$1" ]; then builtin source "$@"; fi; }
exec() { if [ $# -gt 0 ]; then __pipesched_run "$@"; exit; fi; }
command() {
  case "${1-}" in -v|-V) builtin command "$@" ;; -p) shift; __pipesched_run "$@" ;; *) __pipesched_run "$@" ;; esac
}
xargs() {
  local flags
  while case "${1-}" in -[nPILdsa]) shift ;; -*) ;; *) false ;; esac; do flags=$__PIPESCHED_UNKNOWN; shift; done
  __pipesched_run "$@" $(cat) $flags
}
tee() { cat; }
command_not_found_handle() {
  case "$1" in python*|torchrun*) __pipesched_record "$@" ;; esac
  return 0
}
for __pipesched_f in __pipesched_record __pipesched_shell __pipesched_asked __pipesched_is_program \
  __pipesched_debug __pipesched_is_shell __pipesched_other __pipesched_run \
  cd pushd popd source exec command tee xargs command_not_found_handle; do export -f "$__pipesched_f"; done
